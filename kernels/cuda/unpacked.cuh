// MLA decode over an mxfp4 KV cache, by pairs of warpgroups that take the tiles in turn. The scoring one of a pair copies packed rows to shared
// memory, unpacks them to e5m2 in registers, multiplies those by the queries, and leaves P and the 512 dims of V in shared memory; the other one
// multiplies P by V and holds the output.
#pragma once
#include "block.cuh"
#include "unpack.cuh"

constexpr int V_BYTES = 4 * BOX, SUMS_BARRIER = 13;

// PACKED: packed tiles in shared memory of each pair.
template <int PAIRS_, int STAGES, int PACKED_>
struct Unpacked : Block<Kv::e5m2, PAIRS_, PAIRS_, STAGES, V_BYTES, STAGES, STAGES * PAIRS_, PAIRS_ * 256> {
  static constexpr int PAIRS = PAIRS_, PACKED = PACKED_, REFERENCES = (Unpacked::END + 15) & ~15, PACKED_AT = REFERENCES + STAGES * ROWS * 4;
  static constexpr int PACKED_FULL = PACKED_AT + PAIRS * PACKED * PACKED_BYTES, SMEM = PACKED_FULL + PAIRS * PACKED * 8;
  static_assert(PACKED_FULL % 8 == 0 && SMEM <= 232448);

  // A stage belongs to the pairs in turn, but parity waits are only right one phase behind: every pair has barriers of its own for each stage.
  static_assert(STAGES % PAIRS == 1 || PAIRS == 1, "tile t has barriers t % SLOTS");
  static __device__ __forceinline__ uint32_t full(uint32_t smem0, int t) { return smem0 + Unpacked::FULL + (uint32_t)t % Unpacked::SLOTS * 8; }
  static __device__ __forceinline__ uint32_t empty(uint32_t smem0, int t) { return smem0 + Unpacked::EMPTY + (uint32_t)t % Unpacked::SLOTS * 8; }
  static __device__ __forceinline__ int parity(int t) { return (uint32_t)t / Unpacked::SLOTS & 1; }
};

template <class L>
struct Scorer {
  const Args& a;
  const Work& w;
  uint8_t* smem;
  int wg, warp, lane;

  __device__ __forceinline__ uint32_t packed_stage(int n) const { return wg * L::PACKED + (uint32_t)n % L::PACKED; }
  __device__ __forceinline__ uint32_t packed_at(int n) const { return smem_u32(smem) + L::PACKED_AT + packed_stage(n) * PACKED_BYTES; }
  __device__ __forceinline__ uint32_t packed_full(int n) const { return smem_u32(smem) + L::PACKED_FULL + packed_stage(n) * 8; }

  // The rest up to `run` is for one thread. Copies of the pair's n-th tile, to a stage that is free.
  __device__ __forceinline__ void load(int n) const {
    if (const int t = wg + n * L::PAIRS; t < w.tiles) {
      const PackedTile tile(a, w, t);
      tile.expect(packed_full(n));
      tile.copy(packed_at(n), packed_full(n));
    }
  }
  // The first tiles, before it is known for sure which they are, if that can be; then surely.
  __device__ __forceinline__ void start_early() const {
    for (int n = 0; n < L::PACKED; n++) mbar_init(packed_full(n), 1);
    mbar_init_fence();
    if (!a.uniform_len) return;
    Work expected(w);
    expected.expect_tiles(a);
    for (int n = 0; n < L::PACKED; n++)
      if (const int t = wg + n * L::PAIRS; t < expected.tiles) PackedTile(a, expected, t).copy(packed_at(n), packed_full(n));
  }
  __device__ __forceinline__ void start() const {
    Work expected(w);
    if (a.uniform_len) expected.expect_tiles(a);
    const bool right = w.same_tokens(expected);
    for (int n = 0; n < L::PACKED; n++) {
      const int t = wg + n * L::PAIRS;
      const bool started = a.uniform_len && t < expected.tiles;
      if (started) PackedTile(a, expected, t).expect(packed_full(n));
      if (started && !right) discard_copies(packed_full(n));
      if (!started || !right) load(n);
    }
  }

  // Dims 128 group .. of this lane's two tokens: one chunk of each, as the operand of four products, to row `row` and row + 8 of V.
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
    Softmax x;
    x.init(reinterpret_cast<const float*>(smem + L::ROW_SCALE), a.sm_scale, lane);
#pragma unroll 1
    for (int n = 0, t = wg; t < w.tiles; n++, t += L::PAIRS) {
      const uint32_t stage = (uint32_t)t % L::STAGES, v = smem0 + stage * V_BYTES;
      const PackedTile tile(a, w, t);
      mbar_wait(packed_full(n), (n / L::PACKED) & 1);
      const TokenQuarter low(packed_at(n), tile, token, q), high(packed_at(n), tile, token + 8, q);
      float d[16];
      uint32_t operand[2][4][4], rope[2][4];
#pragma unroll
      for (int group = 0; group < 4; group++) {
        score_group(d, operand[group & 1], low, high, group, q_low);
        if (group == 0 && t >= L::STAGES) mbar_wait(L::empty(smem0, t - L::STAGES), L::parity(t - L::STAGES));
        store_group(v, operand[group & 1], group, q, row);
        wgmma_wait_for_registers<1>();
      }
      score_rope(d, rope, low, high, q, q_low);
      Bases bases;
      bases.exponent[0] = low.base;
      bases.exponent[1] = high.base;
      float s[8];
      wgmma_wait(d);
      tile_logits<Kv::e5m2>(s, d, x, bases, (w.tile0 + t) * TILE + token, w.len);
      tile_softmax<Kv::e5m2>(x, s, bases, p_store_addr(smem0 + L::P + stage * P_BYTES, warp, lane), top, 1 + wg, warp, lane, [](const float (&)[4]) {});
      if (warp == 0 && lane < 4)
#pragma unroll
        for (int i = 0; i < 4; i++) reinterpret_cast<float*>(smem + L::REFERENCES)[stage * ROWS + (i >> 1) * 8 + lane * 2 + (i & 1)] = x.m[i];
      __syncwarp();
      if (lane == 0) mbar_arrive(L::full(smem0, t));
      if (warp == 0 && lane == 0) load(n + L::PACKED);     // the softmax's barrier: all four warps have read their rows
    }
    reduce_sums(L::exchange(smem), x, wg, warp, lane);
    bar_sync(SUMS_BARRIER, L::THREADS);
  }
};

// The warpgroup of a pair that holds the output.
template <class L>
__device__ __forceinline__ void hold_output(const Args& a, const Work& w, uint8_t* smem, int wg, int warp, int lane) {
  const uint32_t smem0 = smem_u32(smem);
  const float* references = reinterpret_cast<const float*>(smem + L::REFERENCES) + (lane >> 2);
  float reference[2] = {-INFINITY, -INFINITY};           // the pair's running maxima of rows lane / 4 and lane / 4 + 8
  Output o;
  o.clear();
#pragma unroll 1
  for (int t = wg; t < w.tiles; t += L::PAIRS) {
    const uint32_t stage = (uint32_t)t % L::STAGES;
    mbar_wait(L::full(smem0, t), L::parity(t));
    const float m[2] = {references[stage * ROWS], references[stage * ROWS + 8]};
    if (__any_sync(~0u, m[0] > reference[0] || m[1] > reference[1])) {
      o.scale(part_weight(reference[0], m[0]), part_weight(reference[1], m[1]));
      reference[0] = m[0];
      reference[1] = m[1];
    }
    tile_output8<true>(o.acc, smem0 + stage * V_BYTES + warp * BOX, smem0 + L::P + stage * P_BYTES, lane);
    __syncwarp();
    if (lane == 0) mbar_arrive(L::empty(smem0, t));
  }
  bar_sync(SUMS_BARRIER, L::THREADS);
  combine<Kv::e5m2, L::PAIRS, L::PAIRS>(a, w, L::exchange(smem), o, reference, 1.f, wg, warp, lane);
}

template <class L>
__global__ void __launch_bounds__(L::THREADS, 1) mla_unpacked(const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, wg = warp >> 2;
  Work w(a);
  if (wg < L::PAIRS) {
    const Scorer<L> scorer{a, w, smem, wg, warp & 3, lane};
    const bool starts = (warp & 3) == 0 && lane == 0;
    prepare_queries<L>(
        a, w, smem, warp, lane,
        [&] {
          if (starts) scorer.start_early();
        },
        [&] {
          if (starts) scorer.start();
        });
    scorer.run();
  } else {
    if (warp == L::PAIRS * 4 && lane == 0) L::init_barriers(a, smem, 4);
    cluster_arrive();
    w.find_tiles(a);
    bar_sync(START_BARRIER, L::THREADS);
    hold_output<L>(a, w, smem, wg - L::PAIRS, warp & 3, lane);
  }
}
