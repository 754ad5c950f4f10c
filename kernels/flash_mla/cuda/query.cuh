// Queries as wgmma reads them: NoPE in f16 and RoPE in bf16, both over a power of two of their row, which the score takes again.
#pragma once
#include "block.cuh"

// The largest |q| of a row comes to 2^14: f16 then is exact for all that is not 2^28 below it.
constexpr int LARGEST = 14;

// Offset of a 16-byte chunk (eight dims) of a row in an operand.
__device__ __forceinline__ uint32_t chunk_offset(int row, int chunk) { return (chunk >> 3) * BOX + row * 128 + (((chunk & 7) ^ (row & 7)) << 4); }

// Row `row` of the block by one warp: a lane takes chunks lane, lane + 32 and, of RoPE, lane + 64. Rows past w.heads are zeros.
struct QueryRow {
  uint32_t x[3][4];

  __device__ __forceinline__ void load(const Args& a, const Work& w, int row, int lane) {
    const __nv_bfloat16* src = a.q + w.row(a, min(row, w.heads - 1)) * D_QK;
#pragma unroll
    for (int i = 0; i < 3; i++) {
#pragma unroll
      for (int k = 0; k < 4; k++) x[i][k] = 0;
      if (row < w.heads && i * 32 + lane < D_QK / 8) ld_global(x[i], src + (i * 32 + lane) * 8);
    }
  }

  __device__ __forceinline__ void store(uint32_t smem0, const Args& a, int row, int lane) const {
    uint32_t top = 0;                                    // largest |bf16|, two lanes of 16 bits at once
#pragma unroll
    for (int i = 0; i < 3; i++)
#pragma unroll
      for (int k = 0; k < 4; k++) top = __vmaxu2(top, x[i][k] & 0x7fff7fffu);
    const uint32_t largest = __reduce_max_sync(~0u, max(top & 0xffffu, top >> 16));
    const uint32_t e = max(largest >> 7, LARGEST + 1u);   // biased exponent
    const float inverse = __uint_as_float((254 + LARGEST - e) << 23), power = __uint_as_float((e - LARGEST) << 23);
    if (lane == 0) st_shared(smem0 + ROW_SCALE_AT + row * 4, __float_as_uint(power * a.sm_scale * LOG2E));
#pragma unroll
    for (int i = 0; i < 3; i++) {
      uint32_t o[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const float lo = __uint_as_float(x[i][k] << 16) * inverse, hi = __uint_as_float(x[i][k] & 0xffff0000u) * inverse;
        o[k] = i < 2 ? pack_f16(lo, hi) : pack_bf16(lo, hi);
      }
      if (i * 32 + lane < D_QK / 8) st_shared(smem0 + Q_AT + chunk_offset(row, i * 32 + lane), o);
    }
  }
};

// By the multiplying warpgroups: eight warps, eight rows each.
__device__ __forceinline__ void prepare_queries(const Args& a, const Work& w, uint32_t smem0, int warp, int lane) {
  QueryRow rows[8];
#pragma unroll
  for (int i = 0; i < 8; i++) rows[i].load(a, w, warp * 8 + i, lane);
#pragma unroll
  for (int i = 0; i < 8; i++) rows[i].store(smem0, a, warp * 8 + i, lane);
  fence_async_proxy();
}
