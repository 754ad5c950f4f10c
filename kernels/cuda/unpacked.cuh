// MLA decode over an mxfp4 KV cache. SCORING warpgroups take the tiles in turn: they copy packed rows to shared memory, unpack them to e5m2 in
// registers, multiply those by the queries, and leave P and the 512 dims of V in shared memory. Two more warpgroups multiply every tile's P by its V
// and hold 256 dims of the output each. Every scoring warpgroup has a running maximum of its own, which travels with P.
#pragma once
#include "block.cuh"
#include "unpack.cuh"

constexpr int V_BYTES = 4 * BOX, SUMS_BARRIER = 13, HOLDERS = 2 * 128;

// A stage of P and V for each scoring warpgroup. PACKED: packed tiles, a ring that all of them share; but parity waits are only right one phase
// behind, so every warpgroup has barriers of its own for each place of the ring.
// REGS, HOLDER_REGS: registers per thread of the two kinds, out of what the block is launched with.
template <int SCORING, int PACKED_, int REGS_, int HOLDER_REGS_>
struct Unpacked : Block<Kv::e5m2, SCORING, 1, SCORING, V_BYTES, SCORING, SCORING * 128 + HOLDERS> {
  static constexpr int PACKED = PACKED_, REGS = REGS_, HOLDER_REGS = HOLDER_REGS_, REFERENCES = (Unpacked::END + 15) & ~15, PACKED_AT = REFERENCES + SCORING * ROWS * 4;
  static constexpr int PACKED_FULL = PACKED_AT + PACKED * PACKED_BYTES, SMEM = PACKED_FULL + SCORING * PACKED * 8;
  static_assert(PACKED_FULL % 8 == 0 && SMEM <= 232448);
  static_assert(PACKED >= SCORING && PACKED % SCORING, "the ring's places come to every warpgroup in turn");

  static __device__ __forceinline__ uint32_t packed_at(uint32_t smem0, int place) { return smem0 + PACKED_AT + place * PACKED_BYTES; }
  static __device__ __forceinline__ uint32_t packed_full(uint32_t smem0, int wg, int place) { return smem0 + PACKED_FULL + (wg * PACKED + place) * 8; }

  // One thread, before anything else.
  static __device__ __forceinline__ void init_packed(uint32_t smem0) {
    for (int i = 0; i < SCORING * PACKED; i++) mbar_init(smem0 + PACKED_FULL + i * 8, 1);
    mbar_init_fence();
  }
};

// The copies of packed tiles, by one thread.
template <class L>
struct Loader {
  const Args& a;
  Work& w;
  uint32_t smem0;

  __device__ __forceinline__ uint32_t full(int t) const { return L::packed_full(smem0, (uint32_t)t % L::SCORING, (uint32_t)t % L::PACKED); }
  __device__ __forceinline__ uint32_t at(int t) const { return L::packed_at(smem0, (uint32_t)t % L::PACKED); }

  // To a place that is free.
  __device__ __forceinline__ void load(int t) const {
    if (t >= w.tiles) return;
    const PackedTile tile(a, w, t);
    tile.expect(full(t));
    tile.copy(at(t), full(t));
  }
  // The first tiles. Those that nobody waits behind are started before it is known for sure which they are, if that can be.
  __device__ __forceinline__ void start() const {
    const int2 bounds = w.bounds(a);
    int started = 0;
    Work expected(w);
    if (a.uniform_len) {
      expected.expect_tiles(a);
      started = min(expected.tiles, L::SCORING);
#pragma unroll 1
      for (int t = 0; t < started; t++) PackedTile(a, expected, t).copy(at(t), full(t));
    }
    w.set_tiles(a, bounds);
#pragma unroll 1
    for (int t = 0; t < started; t++) PackedTile(a, expected, t).expect(full(t));
    if (started && !w.same_tokens(expected)) {
#pragma unroll 1
      for (int t = 0; t < started; t++) discard_copies(full(t));
      started = 0;
    }
#pragma unroll 1
    for (int t = started; t < L::PACKED; t++) load(t);
  }
};

template <class L>
struct Scorer {
  const Args& a;
  Work& w;
  uint8_t* smem;
  int wg, warp, lane;
  uint32_t smem0, full, empty, p;                        // the warpgroup's stage
  uint32_t at[4];                                        // where this lane stores a row of V, of each operand of a group
  int q, token;                                          // quarter of its tokens' chunks; the first of its two tokens

  __device__ __forceinline__ Scorer(const Args& a, Work& w, uint8_t* smem, int wg, int warp, int lane)
      : a(a), w(w), smem(smem), wg(wg), warp(warp), lane(lane), smem0(smem_u32(smem)), q(lane & 3), token(warp * 16 + token_of_row(lane >> 2)) {
    full = smem0 + L::FULL + wg * 8;
    empty = smem0 + L::EMPTY + wg * 8;
    p = p_store_addr(smem0 + L::P + wg * P_BYTES, warp, lane);
    // Of the four matrices that are stored at once: rows 0 to 7 and 8 to 15 of the first 16 bytes, then of the next.
    const uint32_t row = (warp * 16 + (lane & 15)) * 128 + (((lane >> 4) ^ (lane & 7)) << 4);
#pragma unroll
    for (int j = 0; j < 4; j++) at[j] = smem0 + wg * V_BYTES + (row ^ (j << 5));
  }

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
  __device__ __forceinline__ void score_rope(float (&d)[16], uint32_t (&operand)[2][4], const TokenQuarter& low, const TokenQuarter& high,
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
  // V of one group as the operands lie, swizzled like a tile that the copy engine writes: 16 bytes of a row are four dims of each of its lanes,
  // so that byte 16 u + 4 q + i of 128 is dim 32 q + 4 u + i (dim_of).
  __device__ __forceinline__ void store_group(const uint32_t (&operand)[4][4], int group) const {
#pragma unroll
    for (int j = 0; j < 4; j++) stmatrix4(at[j] + group * BOX, operand[j]);
  }

  // The warpgroup's n-th tile, which is tile t of the sequence and lies packed at `packed`.
  __device__ __forceinline__ void score(Softmax& x, int n, int t, uint32_t packed) const {
    const PackedTile tile(a, w, t);
    const TokenQuarter low(packed, tile, token, q), high(packed, tile, token + 8, q);
    const uint32_t q_low = operand_low(smem0 + L::Q);
    float d[16], s[8];
    uint32_t operand[4][4], rope[2][4];
#pragma unroll
    for (int group = 0; group < 4; group++) {
      score_group(d, operand, low, high, group, q_low);
      if (group == 0 && n > 0) mbar_wait(empty, (n - 1) & 1);
      store_group(operand, group);
      if (group < 3) wgmma_wait_for_registers<0>();
    }
    score_rope(d, rope, low, high, q_low);
    Bases bases;
    bases.exponent[0] = low.base;
    bases.exponent[1] = high.base;
    wgmma_wait(d);
    tile_logits<Kv::e5m2>(s, d, x, bases, (w.tile0 + t) * TILE + token, w.len);
    tile_softmax<Kv::e5m2>(x, s, bases, p, reinterpret_cast<float*>(smem + L::TOP) + wg * 64, 1 + wg, warp, lane, [](const float (&)[4]) {});
    if (warp == 0 && lane < 4)
#pragma unroll
      for (int i = 0; i < 4; i++) reinterpret_cast<float*>(smem + L::REFERENCES)[wg * ROWS + (i >> 1) * 8 + lane * 2 + (i & 1)] = x.m[i];
    __syncwarp();
    if (lane == 0) mbar_arrive(full);
  }

  __device__ __forceinline__ void run() const {
    Softmax x;
    x.init(reinterpret_cast<const float*>(smem + L::ROW_SCALE), a.sm_scale, lane);
    int place = wg, visits = 0, round = 0;               // of the ring; how often it has been around
#pragma unroll 1
    for (int n = 0, t = wg; t < w.tiles; n++, t += L::SCORING) {
      mbar_wait(L::packed_full(smem0, wg, place), round & 1);
      score(x, n, t, L::packed_at(smem0, place));
      if (warp == 0 && lane == 0) Loader<L>{a, w, smem0}.load(t + L::PACKED);   // the softmax's barrier: all four warps have read their rows
      place += L::SCORING;
      if (place >= L::PACKED) place -= L::PACKED;
      if (++visits == L::PACKED) {
        visits = 0;
        round++;
      }
    }
    reduce_sums(L::exchange(smem), x, wg, warp, lane);
    bar_sync(SUMS_BARRIER, L::THREADS);
  }
};

// The warpgroups that hold the output: warp `warp` of eight, dims 64 warp .. in the order in which V lies.
template <class L>
__device__ __forceinline__ void hold_output(const Args& a, const Work& w, uint8_t* smem, int warp, int lane) {
  const uint32_t smem0 = smem_u32(smem);
  const float* references = reinterpret_cast<const float*>(smem + L::REFERENCES) + (lane >> 2);
  float reference[2] = {-INFINITY, -INFINITY};           // the largest so far, of rows lane / 4 and lane / 4 + 8
  Output<4> o;
  o.clear();
#pragma unroll 1
  for (int t = 0, stage = 0, round = 0; t < w.tiles; t++) {
    mbar_wait(smem0 + L::FULL + stage * 8, round & 1);
    const float m[2] = {references[stage * ROWS], references[stage * ROWS + 8]};
    if (__any_sync(~0u, m[0] > reference[0] || m[1] > reference[1])) {
      const float grown[2] = {fmaxf(m[0], reference[0]), fmaxf(m[1], reference[1])};
      o.scale(part_weight(reference[0], grown[0]), part_weight(reference[1], grown[1]));
      reference[0] = grown[0];
      reference[1] = grown[1];
    }
    const float low = part_weight(m[0], reference[0]), high = part_weight(m[1], reference[1]);
    const uint32_t lows = pack_f16(low, low), highs = pack_f16(high, high), v = smem0 + stage * V_BYTES + (warp >> 1) * BOX;
    tile_output8<true, 4>(o.acc, v, (warp & 1) * 4, smem0 + L::P + stage * P_BYTES, lane, [&](uint32_t(&weights)[4]) {
      weights[0] = mul_f16x2(weights[0], lows);
      weights[1] = mul_f16x2(weights[1], highs);
      weights[2] = mul_f16x2(weights[2], lows);
      weights[3] = mul_f16x2(weights[3], highs);
    });
    __syncwarp();
    if (lane == 0) mbar_arrive(smem0 + L::EMPTY + stage * 8);
    if (++stage == L::SCORING) {
      stage = 0;
      round++;
    }
  }
  bar_sync(SUMS_BARRIER, L::THREADS);
  combine<Kv::e5m2, 1, L::SCORING, HOLDERS>(a, w, L::exchange(smem), o, reference, 1.f, warp >> 2, warp & 3, lane);
}

template <class L>
__global__ void __launch_bounds__(L::THREADS, 1) mla_unpacked(const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, wg = warp >> 2;
  Work w(a);
  if (wg < L::SCORING) {
    take_registers<L::REGS>();
    prepare_queries<L>(a, w, smem, warp, lane);
    Scorer<L>(a, w, smem, wg, warp & 3, lane).run();
  } else {
    give_registers<L::HOLDER_REGS>();
    if (warp == L::SCORING * 4 && lane == 0) {
      const Loader<L> loader{a, w, smem_u32(smem)};
      L::init_packed(loader.smem0);
      loader.start();
      L::init_barriers(a, smem, 4, HOLDERS / 32);
    } else {
      w.find_tiles(a);
    }
    __syncwarp();
    cluster_arrive();
    bar_sync(START_BARRIER, L::THREADS);
    hold_output<L>(a, w, smem, warp - L::SCORING * 4, lane);
  }
}
