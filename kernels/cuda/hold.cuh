// The warpgroup that holds the output over unpacked tiles: O^T[512 dims, 16 rows] += V^T P^T by wgmma with 64 dims as its M and P split into
// two e4m3 parts, as Q is for the scores. V^T comes from shared memory; fp8 sums are short (13 bits), so each tile's is added to the output in
// fp32, weighed.
//
// V^T is [512 dims][64 tokens] in bytes, 64-byte swizzle. Its row and its columns are in an order that unpacked chunks give:
//   row 128 g + 32 j + 8 i + 2 q + e: dim 128 g + 32 q + 8 j + 2 i + e
//   byte: as P's, see store_p
#pragma once
#include "block.cuh"

constexpr int V_BYTES = D_V * TILE;
constexpr int HOLD_BARRIER = 12;

// 64-byte-swizzled operand of 64 bytes a row.
__device__ __forceinline__ uint64_t narrow_operand(uint32_t addr) { return pack_u64(operand_low(addr), NARROW_ROWS); }

// A warp's rows of V^T, this lane's being 64 b + 16 warp + 8 h + lane / 4, for output rows 8 n + 2 (lane % 4) + c.
struct HeldOutput {
  float acc[8][8];                                       // [b][4 n + 2 h + c]

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int b = 0; b < 8; b++)
#pragma unroll
      for (int i = 0; i < 8; i++) acc[b][i] = 0.f;
  }
  __device__ __forceinline__ void scale(const float (&factor)[4]) {   // of rows n, c at 2 n + c
#pragma unroll
    for (int b = 0; b < 8; b++)
#pragma unroll
      for (int i = 0; i < 8; i++) acc[b][i] *= factor[(i >> 2) * 2 + (i & 1)];
  }
  __device__ __forceinline__ void add(int g, const float (&d)[2][16], const float (&factor)[4]) {   // products of the high and the low parts
#pragma unroll
    for (int b = 0; b < 2; b++)
#pragma unroll
      for (int i = 0; i < 8; i++)
        acc[2 * g + b][i] = fmaf(fmaf(d[b][i + 8], 0.0625f, d[b][i]), factor[(i >> 2) * 2 + (i & 1)], acc[2 * g + b][i]);
  }
};

// Starts d = V^T[128 rows from 128 g] P^T, [hi; lo] as columns.
__device__ __forceinline__ void start_output(float (&d)[2][16], uint64_t v, uint64_t p, int g) {
  wgmma_fence();
#pragma unroll
  for (int b = 0; b < 2; b++)
#pragma unroll
    for (int k = 0; k < 2; k++) wgmma_e5m2(d[b], v + ((2 * g + b) * 64 * TILE + k * 32) / 16, p + k * 32 / 16, k);
  wgmma_commit();
}

// As the combine takes it, through `scratch` in shared memory: [16][SCRATCH_PITCH] floats, then 16 maxima.
constexpr int SCRATCH_PITCH = D_V + 4;
__device__ __forceinline__ void regroup(Output& o, float (&reference)[2], const HeldOutput& held, const float (&maxima)[4], float* scratch, int warp,
                                        int lane) {
  float* top = scratch + ROWS * SCRATCH_PITCH;
#pragma unroll
  for (int b = 0; b < 8; b++)
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int row = (i >> 2) * 8 + (lane & 3) * 2 + (i & 1), v_row = 64 * b + 16 * warp + (i >> 1 & 1) * 8 + (lane >> 2);
      scratch[row * SCRATCH_PITCH + v_row] = held.acc[b][i];
    }
  if (warp == 0 && lane < 4)
#pragma unroll
    for (int i = 0; i < 4; i++) top[(i >> 1) * 8 + lane * 2 + (i & 1)] = maxima[i];
  bar_sync(HOLD_BARRIER, 128);
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const int row = lane / 4 + 8 * k;
    reference[k] = top[row];
#pragma unroll
    for (int c = 0; c < 8; c++)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        // dims 128 warp + 16 c + 4 (lane % 4) + 2 j + {0, 1}
        const int in_row = 16 * c + 4 * (lane & 3) + 2 * j;
        const int v_row = warp * 128 + (in_row >> 3 & 3) * 32 + (in_row >> 1 & 3) * 8 + (in_row >> 5) * 2;
        const float2 x = *reinterpret_cast<const float2*>(scratch + row * SCRATCH_PITCH + v_row);
        o.acc[2 * c][2 * k + j] = x.x;
        o.acc[2 * c + 1][2 * k + j] = x.y;
      }
  }
}

template <class L>
struct Holder {
  uint8_t* smem;
  int warp, lane;
  HeldOutput held;
  float reference[4];                                    // the largest so far, of this lane's output rows

  // Factors of a tile's products: its P has maxima of its own, to which the output is raised, or which weigh the products.
  __device__ __forceinline__ void weigh(float (&factor)[4], int stage) {
    const float* m = reinterpret_cast<const float*>(smem + L::REFERENCES) + stage * ROWS + (lane & 3) * 2;
    float own[4], grown[4];
    bool grew = false;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      own[i] = m[(i >> 1) * 8 + (i & 1)];
      grown[i] = fmaxf(reference[i], own[i]);
      grew |= grown[i] > reference[i];
    }
    if (__any_sync(~0u, grew)) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        factor[i] = part_weight(reference[i], grown[i]);
        reference[i] = grown[i];
      }
      held.scale(factor);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) factor[i] = part_weight(own[i], reference[i]);
  }

  __device__ __forceinline__ void run(const Args& a, const Work& w) {
    const uint32_t smem0 = smem_u32(smem);
    const int tiles = __shfl_sync(~0u, w.tiles, 0);      // warp-uniform for the compiler
    held.clear();
#pragma unroll
    for (int i = 0; i < 4; i++) reference[i] = -INFINITY;
#pragma unroll 1
    for (int t = 0, stage = 0, phase = 0; t < tiles; t++) {
      mbar_wait(L::full(smem0, stage), phase);
      const uint64_t v = narrow_operand(smem0 + stage * V_BYTES), p = narrow_operand(smem0 + L::P + stage * P_BYTES<Kv::e5m2>);
      float d[2][2][16], factor[4];
      start_output(d[0], v, p, 0);
      start_output(d[1], v, p, 1);
      weigh(factor, stage);
#pragma unroll
      for (int g = 0; g < 4; g++) {
        for (auto& part : d[g & 1]) g < 3 ? wgmma_wait<1>(part) : wgmma_wait<0>(part);
        if (g == 3 && lane == 0) mbar_arrive(L::empty(smem0, stage));
        held.add(g, d[g & 1], factor);
        if (g < 2) start_output(d[g & 1], v, p, g + 2);
      }
      if (++stage == L::SCORING) {
        stage = 0;
        phase ^= 1;
      }
    }
    bar_sync(HOLD_BARRIER, 128);                         // nobody of this block reads a stage any more
    Output o;
    float maxima[2];
    regroup(o, maxima, held, reference, reinterpret_cast<float*>(smem + L::SCRATCH), warp, lane);
    combine<Kv::e5m2, 1>(a, w, L::exchange(smem), o, maxima, 1.f, 0, warp, lane);
  }
};
