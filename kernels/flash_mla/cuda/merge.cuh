// The splits of a query row: one warp merges 256 dims.
#pragma once
#include "block.cuh"

constexpr int MERGE_WARPS = 4, IN_FLIGHT = 16;           // splits whose loads are in flight

__device__ __forceinline__ void add_part(float (&out)[8], uint4 x, float weight) {
  const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float2 v = unpack_f16(pairs[k]);
    out[2 * k] = fmaf(weight, v.x, out[2 * k]);
    out[2 * k + 1] = fmaf(weight, v.y, out[2 * k + 1]);
  }
}

__global__ void __launch_bounds__(MERGE_WARPS * 32) merge_splits(const __grid_constant__ Args a) {
  const int lane = threadIdx.x & 31;
  const size_t task = (size_t)blockIdx.x * MERGE_WARPS + (threadIdx.x >> 5), row = task >> 1;
  await_dependencies();
  if (row >= (size_t)a.tokens * a.heads) return;
  const float* lse = a.part_lse + row * a.splits;
  const uint16_t* part = a.part + row * a.splits * D_V + (task & 1) * 256 + lane * 8;
  float peak = -INFINITY;
  for (int i = lane; i < a.splits; i += 32) peak = fmaxf(peak, __ldcg(lse + i));
#pragma unroll
  for (int o = 1; o < 32; o <<= 1) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, o));
  float sum = 0.f, out[8] = {};
#pragma unroll 1
  for (int first = 0; first < a.splits; first += IN_FLIGHT) {
    uint4 x[IN_FLIGHT];
    float weight[IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      const int split = min(first + i, a.splits - 1);
      weight[i] = __ldcg(lse + split);
      x[i] = __ldcg(reinterpret_cast<const uint4*>(part + (size_t)split * D_V));
    }
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      weight[i] = first + i >= a.splits || weight[i] == -INFINITY ? 0.f : exp2_approx(weight[i] - peak);
      sum += weight[i];
      add_part(out, x[i], weight[i]);
    }
  }
  const float lse2 = peak + log2f(sum), factor = sum == 0.f ? 0.f : sink_factor(a, row % a.heads, lse2) / sum;
  uint32_t o[4];
#pragma unroll
  for (int k = 0; k < 4; k++) o[k] = sum == 0.f ? 0u : pack_bf16(out[2 * k] * factor, out[2 * k + 1] * factor);
  st_global(reinterpret_cast<uint16_t*>(a.out) + row * D_V + (task & 1) * 256 + lane * 8, o);
  if (lane == 0 && (task & 1) == 0) a.lse[lse_place(a, row)] = natural_lse(lse2, sum);
}
