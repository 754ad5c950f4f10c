// MLA decode over an mxfp4 KV cache. SCORING warpgroups take the tiles in turn: they copy packed rows to shared memory, unpack them to e5m2 in
// registers, multiply those by the queries, and leave P and V^T in shared memory. One more multiplies every tile's V^T by its P and holds the
// output. Every scoring warpgroup has a running maximum of its own, which travels with P.
#pragma once
#include "hold.cuh"
#include "unpack.cuh"

// Every scoring warpgroup has a stage of P and V. PACKED: packed tiles. A place for packed tiles belongs to warpgroups in turn, but parity waits
// are only right one phase behind: every warpgroup has a barrier of its own for each place.
template <int SCORING, int PACKED_>
struct Unpacked : Block<Kv::e5m2, SCORING, 1, SCORING, V_BYTES, SCORING, (SCORING + 1) * 128> {
  static constexpr int PACKED = PACKED_, PACKED_SLOTS = PACKED * SCORING, REFERENCES = (Unpacked::END + 15) & ~15;
  static constexpr int SCRATCH = (Unpacked::OUTBOX + OUTBOX_BYTES<Kv::e5m2> + 15) & ~15;
  static constexpr int PACKED_AT = REFERENCES + SCORING * ROWS * 4, PACKED_FULL = PACKED_AT + PACKED * PACKED_BYTES;
  static constexpr int SMEM = PACKED_FULL + PACKED_SLOTS * 8;
  static constexpr int SCORER_REGISTERS = 112, HOLDER_REGISTERS = 176;         // of 128 each at first
  static_assert(SCORER_REGISTERS * SCORING + HOLDER_REGISTERS <= 128 * (SCORING + 1));
  static_assert(PACKED_FULL % 8 == 0 && SMEM <= 232448);
  static_assert(SCRATCH + (ROWS * SCRATCH_PITCH + ROWS) * 4 <= SCORING * V_BYTES);
  static_assert(PACKED > SCORING, "Place::next takes at most one turn off");

  static __device__ __forceinline__ uint32_t full(uint32_t smem0, int wg) { return smem0 + Unpacked::FULL + wg * 8; }
  static __device__ __forceinline__ uint32_t empty(uint32_t smem0, int wg) { return smem0 + Unpacked::EMPTY + wg * 8; }

  // One thread, before anything else.
  static __device__ __forceinline__ void init_packed(uint32_t smem0) {
    for (int i = 0; i < PACKED_SLOTS; i++) mbar_init(smem0 + PACKED_FULL + i * 8, 1);
    mbar_init_fence();
  }
};

// Where the packed tile of a scoring warpgroup's turn lies: tile t is in place t % PACKED, and its barrier's number is t % PACKED_SLOTS.
template <class L>
struct Place {
  uint32_t place, barrier, phase = 0;

  __device__ __forceinline__ explicit Place(int t) : place(t % L::PACKED), barrier(t % L::PACKED_SLOTS) {}
  __device__ __forceinline__ void next() {               // SCORING tiles on
    place += place < L::PACKED - L::SCORING ? L::SCORING : L::SCORING - L::PACKED;
    phase ^= barrier >= L::PACKED_SLOTS - L::SCORING;
    barrier += barrier < L::PACKED_SLOTS - L::SCORING ? L::SCORING : L::SCORING - L::PACKED_SLOTS;
  }
  __device__ __forceinline__ Place reused() const {      // PACKED tiles on: another warpgroup's
    Place other(*this);
    other.barrier += barrier < L::PACKED_SLOTS - L::PACKED ? L::PACKED : L::PACKED - L::PACKED_SLOTS;
    return other;
  }
  __device__ __forceinline__ uint32_t tile(uint32_t smem0) const { return smem0 + L::PACKED_AT + place * PACKED_BYTES; }
  __device__ __forceinline__ uint32_t full(uint32_t smem0) const { return smem0 + L::PACKED_FULL + barrier * 8; }
};

// One thread copies a packed tile to a place that is free.
template <class L>
__device__ __forceinline__ void load_packed(const PackedRows& rows, int t, const Place<L>& at, uint32_t smem0) {
  rows.copy(t, at.tile(smem0), at.full(smem0));
  rows.expect(t, at.full(smem0));
}
// The first ones.
template <class L>
__device__ __forceinline__ void start_packed(const Args& a, Work& w, uint32_t smem0) {
  auto full = [&](int t) { return Place<L>(t).full(smem0); };
  start_copies(
      a, w, a.uniform_len, L::SCORING, L::PACKED, [&](const Work& work, int t) { PackedRows(a, work).copy(t, Place<L>(t).tile(smem0), full(t)); },
      [&](const Work& work, int t) { PackedRows(a, work).expect(t, full(t)); }, full,
      [&](int t) { load_packed<L>(PackedRows(a, w), t, Place<L>(t), smem0); });
}

template <class L>
struct Scorer {
  const Args& a;
  Work& w;
  uint8_t* smem;
  int wg, warp, lane;

  // One chunk of each of this lane's two tokens, of dims 128 group .., as the operand of four products.
  __device__ __forceinline__ void score_group(float (&d)[16], uint32_t (&operand)[4][4], const TokenQuarter& low, const TokenQuarter& high,
                                              const uint32_t (&x)[4], const uint32_t (&y)[4], int group, uint32_t q_low) const {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      low.unpack(operand[j][0], operand[j][2], x[j], group);
      high.unpack(operand[j][1], operand[j][3], y[j], group);
    }
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; j++)
      wgmma_e5m2(d, operand[j], pack_u64(q_low + (group * Q_BOX + j * 32) / 16, WIDE_ROWS), group + j);
    wgmma_commit();
  }
  __device__ __forceinline__ void score_rope(float (&d)[16], uint32_t (&operand)[2][4], const TokenQuarter& low, const TokenQuarter& high, int q,
                                             uint32_t q_low) const {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      low.unpack(operand[j][0], operand[j][2], low.load_rope(j, q), 4 + j);
      high.unpack(operand[j][1], operand[j][3], high.load_rope(j, q), 4 + j);
    }
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 2; j++) wgmma_e5m2(d, operand[j], pack_u64(q_low + (4 * Q_BOX + j * 32) / 16, NARROW_ROWS), 1);
    wgmma_commit();
  }
  // To V^T, whose row `lane` of the first 32 has this warp's 16 bytes at `v`.
  __device__ __forceinline__ void store_group(uint32_t v, const uint32_t (&operand)[4][4], int group) const {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const uint32_t(&x)[4] = operand[j];
      stmatrix4_trans(v + (group * 4 + j) * 32 * TILE, pick_bytes(x[0], x[1], 0x5140), pick_bytes(x[0], x[1], 0x7362),
                      pick_bytes(x[2], x[3], 0x5140), pick_bytes(x[2], x[3], 0x7362));
    }
  }

  __device__ __forceinline__ void run() const {
    const uint32_t smem0 = smem_u32(smem), q_low = operand_low(smem0 + L::Q);
    const int q = lane & 3, token = warp * 16 + token_of_row(lane >> 2);
    float* top = reinterpret_cast<float*>(smem + L::TOP) + wg * 64;
    Softmax softmax;
    softmax.init(reinterpret_cast<const float*>(smem + L::ROW_SCALE), a.sm_scale, lane);
    const uint32_t v = narrow_store_addr(smem0 + wg * V_BYTES, warp, lane);
    const uint32_t p = narrow_store_addr(smem0 + L::P + wg * P_BYTES<Kv::e5m2>, warp, lane);
    float* references = reinterpret_cast<float*>(smem + L::REFERENCES) + wg * ROWS;
    const PackedRows rows(a, w);
    Place<L> at(wg);
    uint32_t turn = 0;
#pragma unroll 1
    for (int t = wg; t < w.tiles; t += L::SCORING, turn++, at.next()) {
      mbar_wait(at.full(smem0), at.phase);
      const TokenQuarter low(at.tile(smem0), rows, t, token, q), high(at.tile(smem0), rows, t, token + 8, q);
      float d[16];
      uint32_t operand[4][4], rope[2][4], x[4], y[4];
      low.load(x, 0);
      high.load(y, 0);
#pragma unroll
      for (int group = 0; group < 4; group++) {
        score_group(d, operand, low, high, x, y, group, q_low);
        if (group < 3) {
          low.load(x, group + 1);
          high.load(y, group + 1);
        }
        if (group == 0 && turn > 0) mbar_wait(L::empty(smem0, wg), (turn - 1) & 1);
        store_group(v, operand, group);
        if (group < 3) wgmma_wait_for_registers<0>();
      }
      score_rope(d, rope, low, high, q, q_low);
      Bases bases;
      bases.exponent[0] = low.base;
      bases.exponent[1] = high.base;
      float s[8];
      wgmma_wait(d);
      tile_logits<Kv::e5m2>(s, d, softmax, bases, (w.tile0 + t) * TILE + token, w.len);
      tile_softmax<Kv::e5m2>(softmax, s, bases, p, top, 1 + wg, warp, lane, [](const float (&)[4]) {});
      if (warp == 0 && lane < 4)
#pragma unroll
        for (int i = 0; i < 4; i++) references[(i >> 1) * 8 + lane * 2 + (i & 1)] = softmax.m[i];
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) mbar_arrive(L::full(smem0, wg));
      // The softmax's barrier has said that all four warps have read their packed rows.
      if (warp == 0 && lane == 0 && t + L::PACKED < w.tiles) load_packed<L>(rows, t + L::PACKED, at.reused(), smem0);
    }
    const Exchange e = L::exchange(smem);
    reduce_sums(e, softmax, wg, warp, lane);
    // Not by an mbarrier, which some lanes would arrive at: the compiler then forgets that the loop's counters are the same in all. 269 us for 254.
    bar_arrive(SUMS_BARRIER, (L::SCORING * 4 + 1) * 32);
    if (wg == 0 && warp == 1) {
      bar_sync(SUMS_BARRIER, (L::SCORING * 4 + 1) * 32);
      exchange_sums<L::SCORING, 128>(a, w, e, lane);
    }
  }
};

template <class L>
__global__ void __launch_bounds__(L::THREADS, 1) mla_unpacked(const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, wg = warp >> 2;
  Work w(a);
  QueryRows<QUERY_WARPS<L>> q;
  if (warp < QUERY_WARPS<L>) q.load(a, w, warp, lane);
  if (wg < L::SCORING) {
    give_registers<L::SCORER_REGISTERS>();
    prepare_queries<L>(a, w, q, smem, warp, lane);
    Scorer<L>{a, w, smem, wg, warp & 3, lane}.run();
  } else {
    if (warp == L::SCORING * 4 && lane == 0) {
      L::init_packed(smem_u32(smem));
      start_packed<L>(a, w, smem_u32(smem));
      L::init_tiles(smem, 4);
    } else {
      w.find_tiles(a);
    }
    __syncwarp();
    cluster_arrive();
    begin_together(L::THREADS);
    take_registers<L::HOLDER_REGISTERS>();
    Holder<L>{smem, warp & 3, lane}.run(a, w);
  }
}
