// MLA decode over an mxfp4 KV cache. A producer warp copies packed rows to shared memory. SCORING warpgroups take tiles in turn: they unpack to
// e5m2 in registers, multiply those by the queries, and leave P and the 512 dims of V in shared memory. One warpgroup holds the output: it
// multiplies every tile's P and V. Each scoring warpgroup has a running maximum of its own, which travels with P.
#pragma once
#include "block.cuh"
#include "unpack.cuh"

constexpr int V_BYTES = 4 * BOX, SUMS_BARRIER = 13;

// PACKED: packed tiles in shared memory.
template <int SCORING, int STAGES, int PACKED_>
struct Unpacked : Block<Kv::e5m2, SCORING, 1, STAGES, V_BYTES, STAGES, SCORING * 128 + 128 + 32> {
  static constexpr int PACKED = PACKED_, REFERENCES = (Unpacked::END + 15) & ~15, PACKED_AT = REFERENCES + STAGES * ROWS * 4;
  static constexpr int PACKED_FULL = PACKED_AT + PACKED * PACKED_BYTES, PACKED_EMPTY = PACKED_FULL + PACKED * 8, SMEM = PACKED_EMPTY + PACKED * 8;
  static_assert(PACKED_FULL % 8 == 0 && SMEM <= 232448);
  static_assert(2 * PACKED >= SCORING + STAGES, "see Scorer::await_packed");
};

template <class L>
__device__ __forceinline__ void copy_packed(const Args& a, const Work& w, uint32_t smem0, int lane) {
  const size_t first = (size_t)w.row0 + w.tile0 * TILE;
  auto load = [&](int t) {
    const uint32_t stage = (uint32_t)t % L::PACKED;
    const size_t row = first + t * TILE;
    load_packed(smem0 + L::PACKED_AT + stage * PACKED_BYTES, a.kv + row * ROW_BYTES4, a.kv_e8m0 + row * a.e8m0_stride, a.e8m0_stride,
                min(TILE, w.len - (w.tile0 + t) * TILE), smem0 + L::PACKED_FULL + stage * 8);
  };
  if (lane == 0)
#pragma unroll 1
    for (int t = 0; t < min(w.tiles, L::PACKED); t++) load(t);
  __syncwarp();
  bar_sync(START_BARRIER, L::THREADS);
  if (lane == 0)
#pragma unroll 1
    for (int t = L::PACKED; t < w.tiles; t++) {
      mbar_wait(smem0 + L::PACKED_EMPTY + (uint32_t)t % L::PACKED * 8, (t / L::PACKED - 1) & 1);
      load(t);
    }
}

template <class L>
struct Scorer {
  const Args& a;
  const Work& w;
  uint8_t* smem;
  int wg, warp, lane;

  // Parity waits are only right one phase behind. The output is made in order of the tiles: this warpgroup's last tile waited for tile
  // t - SCORING - STAGES to be done, so a stage is never further behind, and of a packed one that other warpgroups use too, the use before
  // the last is over; the last is awaited first.
  __device__ __forceinline__ void await_packed(uint32_t smem0, int t) const {
    const uint32_t stage = (uint32_t)t % L::PACKED;
    if (L::PACKED % L::SCORING && t >= L::PACKED) mbar_wait(smem0 + L::PACKED_EMPTY + stage * 8, (t / L::PACKED - 1) & 1);
    mbar_wait(smem0 + L::PACKED_FULL + stage * 8, (t / L::PACKED) & 1);
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
    const uint8_t* e8m0 = a.kv_e8m0 + ((size_t)w.row0 + w.tile0 * TILE) * a.e8m0_stride;
    float* top = reinterpret_cast<float*>(smem + L::TOP) + wg * 64;
    Softmax x;
    x.init(reinterpret_cast<const float*>(smem + L::ROW_SCALE), a.sm_scale, lane);
#pragma unroll 1
    for (int t = wg; t < w.tiles; t += L::SCORING) {
      const uint32_t packed = (uint32_t)t % L::PACKED, stage = (uint32_t)t % L::STAGES;
      const uint32_t packed_at = smem0 + L::PACKED_AT + packed * PACKED_BYTES, v = smem0 + stage * V_BYTES;
      const uint32_t skipped = (uint32_t)(uintptr_t)(e8m0 + (size_t)t * TILE * a.e8m0_stride) & 15;
      const int last = w.len - (w.tile0 + t) * TILE - 1;   // past it the last token is repeated: its weight will be zero
      await_packed(smem0, t);
      const TokenQuarter low(packed_at, skipped, a.e8m0_stride, min(token, last), q), high(packed_at, skipped, a.e8m0_stride, min(token + 8, last), q);
      float d[16];
      uint32_t operand[2][4][4], rope[2][4];
#pragma unroll
      for (int group = 0; group < 4; group++) {
        score_group(d, operand[group & 1], low, high, group, q_low);
        if (group == 0 && t >= L::STAGES) mbar_wait(smem0 + L::EMPTY + stage * 8, (t / L::STAGES - 1) & 1);
        store_group(v, operand[group & 1], group, q, row);
        wgmma_wait_for_registers<1>();
      }
      score_rope(d, rope, low, high, q, q_low);
      __syncwarp();
      if (lane == 0) mbar_arrive(smem0 + L::PACKED_EMPTY + packed * 8);
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
      if (lane == 0) mbar_arrive(smem0 + L::FULL + stage * 8);
    }
    reduce_sums(L::exchange(smem), x, wg, warp, lane);
    bar_sync(SUMS_BARRIER, L::SCORING * 128 + 128);
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
    mbar_wait(smem0 + L::FULL + stage * 8, (t / L::STAGES) & 1);
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
    if (lane == 0) mbar_arrive(smem0 + L::EMPTY + stage * 8);
  }
  bar_sync(SUMS_BARRIER, L::SCORING * 128 + 128);
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
  } else if (wg == L::SCORING) {
    cluster_arrive();
    w.find_tiles(a);
    bar_sync(START_BARRIER, L::THREADS);
    hold_output<L>(a, w, smem, warp & 3, lane);
  } else {
    const uint32_t smem0 = smem_u32(smem);
    if (lane == 0) {
      for (int i = 0; i < L::PACKED; i++) {
        mbar_init(smem0 + L::PACKED_FULL + i * 8, 1);
        mbar_init(smem0 + L::PACKED_EMPTY + i * 8, 4);
      }
      L::init_barriers(a, smem, 4);
    }
    cluster_arrive();
    w.find_tiles(a);
    copy_packed<L>(a, w, smem0, lane);
  }
}
