// MLA decode over an mxfp4 KV cache. SCORING warpgroups take the tiles in turn: they copy packed rows to shared memory, unpack them to e5m2 in
// registers, multiply those by the queries, and leave P and the 512 dims of V in shared memory. One more multiplies every tile's P by its V and
// holds the output. Every scoring warpgroup has a running maximum of its own, which travels with P.
#pragma once
#include "block.cuh"
#include "unpack.cuh"

constexpr int V_BYTES = 4 * BOX, SUMS_BARRIER = 13;

// STAGES of P and V; PACKED: packed tiles. A place for packed tiles belongs to warpgroups in turn, but parity waits are only right one phase
// behind: every warpgroup has a barrier of its own for each place.
template <int SCORING, int STAGES, int PACKED_>
struct Unpacked : Block<Kv::e5m2, SCORING, 1, STAGES, V_BYTES, STAGES, (SCORING + 1) * 128> {
  static constexpr int PACKED = PACKED_, PACKED_SLOTS = PACKED * SCORING, REFERENCES = (Unpacked::END + 15) & ~15;
  static constexpr int PACKED_AT = REFERENCES + STAGES * ROWS * 4, PACKED_FULL = PACKED_AT + PACKED * PACKED_BYTES, SMEM = PACKED_FULL + PACKED_SLOTS * 8;
  static_assert(PACKED_FULL % 8 == 0 && SMEM <= 232448);
  static_assert(STAGES % SCORING == 0, "a scoring warpgroup waits for what it filled itself");

  static __device__ __forceinline__ uint32_t full(uint32_t smem0, int t) { return smem0 + Unpacked::FULL + (uint32_t)t % STAGES * 8; }
  static __device__ __forceinline__ uint32_t empty(uint32_t smem0, int t) { return smem0 + Unpacked::EMPTY + (uint32_t)t % STAGES * 8; }
  static __device__ __forceinline__ int parity(int t) { return (uint32_t)t / STAGES & 1; }
  static __device__ __forceinline__ uint32_t packed_at(uint32_t smem0, int t) { return smem0 + PACKED_AT + (uint32_t)t % PACKED * PACKED_BYTES; }
  static __device__ __forceinline__ uint32_t packed_full(uint32_t smem0, int t) { return smem0 + PACKED_FULL + (uint32_t)t % PACKED_SLOTS * 8; }
  static __device__ __forceinline__ int packed_parity(int t) { return (uint32_t)t / PACKED_SLOTS & 1; }

  // One thread, before anything else.
  static __device__ __forceinline__ void init_packed(uint32_t smem0) {
    for (int i = 0; i < PACKED_SLOTS; i++) mbar_init(smem0 + PACKED_FULL + i * 8, 1);
    mbar_init_fence();
  }
};

// The copies of packed tiles, by one thread.
template <class L>
struct Loader {
  const Args& a;
  Work& w;
  uint32_t smem0;

  // To a stage that is free.
  __device__ __forceinline__ void load(int t) const {
    if (t >= w.tiles) return;
    const PackedTile tile(a, w, t);
    tile.copy(L::packed_at(smem0, t), L::packed_full(smem0, t));
    tile.expect(L::packed_full(smem0, t));
  }
  __device__ __forceinline__ void start() const {
    auto full = [&](int t) { return L::packed_full(smem0, t); };
    start_copies(
        a, w, a.uniform_len, L::SCORING, L::PACKED,
        [&](const Work& work, int t) { PackedTile(a, work, t).copy(L::packed_at(smem0, t), full(t)); },
        [&](const Work& work, int t) { PackedTile(a, work, t).expect(full(t)); }, full, [&](int t) { load(t); });
  }
};

template <class L>
struct Scorer {
  const Args& a;
  Work& w;
  uint8_t* smem;
  int wg, warp, lane;

  // One chunk of each of this lane's two tokens, of dims 128 group .., as the operand of four products.
  __device__ __forceinline__ void score_group(float (&d)[16], uint32_t (&operand)[4][4], const TokenQuarter& low, const TokenQuarter& high, int group,
                                              uint32_t q_low) const {
    uint32_t x[4], y[4];
    low.load(x, group);
    high.load(y, group);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      low.unpack(operand[j][0], operand[j][2], x[j], group);
      high.unpack(operand[j][1], operand[j][3], y[j], group);
    }
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; j++)
      wgmma_e5m2(d, operand[j], pack_u64(q_low + (group * Q_BOX + j * 32) / 16, (1024u >> 4) | (1u << 30)), group + j);
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
    for (int j = 0; j < 2; j++) wgmma_e5m2(d, operand[j], pack_u64(q_low + (4 * Q_BOX + j * 32) / 16, (512u >> 4) | (2u << 30)), 1);
    wgmma_commit();
  }
  // V is swizzled like a tile that the copy engine writes.
  __device__ __forceinline__ void store_group(uint32_t v, const uint32_t (&operand)[4][4], int group, int q, int row) const {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const uint32_t dims[4] = {operand[2 * k][half], operand[2 * k][half + 2], operand[2 * k + 1][half], operand[2 * k + 1][half + 2]};
        st_shared(v + group * BOX + (row + half * 8) * 128 + (((2 * q + k) ^ (row & 7)) << 4), dims);
      }
  }

  __device__ __forceinline__ void run() const {
    const uint32_t smem0 = smem_u32(smem), q_low = operand_low(smem0 + L::Q);
    const int row = warp * 16 + (lane >> 2), q = lane & 3, token = warp * 16 + token_of_row(lane >> 2);
    float* top = reinterpret_cast<float*>(smem + L::TOP) + wg * 64;
    Softmax softmax;
    softmax.init(reinterpret_cast<const float*>(smem + L::ROW_SCALE), a.sm_scale, lane);
#pragma unroll 1
    for (int t = wg; t < w.tiles; t += L::SCORING) {
      const uint32_t stage = (uint32_t)t % L::STAGES, v = smem0 + stage * V_BYTES;
      const PackedTile tile(a, w, t);
      mbar_wait(L::packed_full(smem0, t), L::packed_parity(t));
      const TokenQuarter low(L::packed_at(smem0, t), tile, token, q), high(L::packed_at(smem0, t), tile, token + 8, q);
      float d[16];
      uint32_t operand[4][4], rope[2][4];
#pragma unroll
      for (int group = 0; group < 4; group++) {
        score_group(d, operand, low, high, group, q_low);
        if (group == 0 && t >= L::STAGES) mbar_wait(L::empty(smem0, t - L::STAGES), L::parity(t - L::STAGES));
        store_group(v, operand, group, q, row);
        if (group < 3) wgmma_wait_for_registers<0>();
      }
      score_rope(d, rope, low, high, q, q_low);
      Bases bases;
      bases.exponent[0] = low.base;
      bases.exponent[1] = high.base;
      float s[8];
      wgmma_wait(d);
      tile_logits<Kv::e5m2>(s, d, softmax, bases, (w.tile0 + t) * TILE + token, w.len);
      tile_softmax<Kv::e5m2>(softmax, s, bases, p_store_addr(smem0 + L::P + stage * P_BYTES, warp, lane), top, 1 + wg, warp, lane, [](const float (&)[4]) {});
      if (warp == 0 && lane < 4)
#pragma unroll
        for (int i = 0; i < 4; i++) reinterpret_cast<float*>(smem + L::REFERENCES)[stage * ROWS + (i >> 1) * 8 + lane * 2 + (i & 1)] = softmax.m[i];
      __syncwarp();
      if (lane == 0) mbar_arrive(L::full(smem0, t));
      if (warp == 0 && lane == 0) Loader<L>{a, w, smem0}.load(t + L::PACKED);   // the softmax's barrier: all four warps have read their rows
    }
    reduce_sums(L::exchange(smem), softmax, wg, warp, lane);
    bar_sync(SUMS_BARRIER, L::THREADS);
  }
};

// The warpgroup that holds the output.
template <class L>
__device__ __forceinline__ void hold_output(const Args& a, const Work& w, uint8_t* smem, int warp, int lane) {
  const uint32_t smem0 = smem_u32(smem);
  const float* references = reinterpret_cast<const float*>(smem + L::REFERENCES) + (lane >> 2);
  float reference[2] = {-INFINITY, -INFINITY};           // the largest so far, of rows lane / 4 and lane / 4 + 8
  Output o;
  o.clear();
#pragma unroll 1
  for (int t = 0; t < w.tiles; t++) {
    const uint32_t stage = (uint32_t)t % L::STAGES;
    mbar_wait(L::full(smem0, t), L::parity(t));
    const float m[2] = {references[stage * ROWS], references[stage * ROWS + 8]};
    if (__any_sync(~0u, m[0] > reference[0] || m[1] > reference[1])) {
      const float grown[2] = {fmaxf(m[0], reference[0]), fmaxf(m[1], reference[1])};
      o.scale(part_weight(reference[0], grown[0]), part_weight(reference[1], grown[1]));
      reference[0] = grown[0];
      reference[1] = grown[1];
    }
    const float low = part_weight(m[0], reference[0]), high = part_weight(m[1], reference[1]);
    const uint32_t lows = pack_f16(low, low), highs = pack_f16(high, high);
    tile_output8<true>(o.acc, smem0 + stage * V_BYTES + warp * BOX, smem0 + L::P + stage * P_BYTES, lane, [&](uint32_t(&weights)[4]) {
      weights[0] = mul_f16x2(weights[0], lows);
      weights[1] = mul_f16x2(weights[1], highs);
      weights[2] = mul_f16x2(weights[2], lows);
      weights[3] = mul_f16x2(weights[3], highs);
    });
    __syncwarp();
    if (lane == 0) mbar_arrive(L::empty(smem0, t));
  }
  bar_sync(SUMS_BARRIER, L::THREADS);
  combine<Kv::e5m2, 1, L::SCORING>(a, w, L::exchange(smem), o, reference, 1.f, 0, warp, lane);
}

template <class L>
__global__ void __launch_bounds__(L::THREADS, 1) mla_unpacked(const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, wg = warp >> 2;
  Work w(a);
  if (wg < L::SCORING) {
    prepare_queries<L>(a, w, smem, warp, lane);
    Scorer<L>{a, w, smem, wg, warp & 3, lane}.run();
  } else {
    if (warp == L::SCORING * 4 && lane == 0) {
      const Loader<L> loader{a, w, smem_u32(smem)};
      L::init_packed(loader.smem0);
      loader.start();
      L::init_barriers(a, smem, 4);
    } else {
      w.find_tiles(a);
    }
    __syncwarp();
    cluster_arrive();
    bar_sync(START_BARRIER, L::THREADS);
    hold_output<L>(a, w, smem, warp & 3, lane);
  }
}
