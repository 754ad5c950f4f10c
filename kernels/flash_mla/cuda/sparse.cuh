// The kernel: three warpgroups of a block.
#pragma once
#include "attend.cuh"
#include "gather.cuh"

__global__ void __launch_bounds__(THREADS, 1) sparse_v32(const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, group = warp >> 2;
  const uint32_t smem0 = smem_u32(smem);
  const Work w(a);
  launch_dependents();
  if (group == 2) {
    if (warp == 2 * WARPS && lane == 0) {
      for (int i = 0; i < STAGES; i++) {
        mbar_init(smem0 + FULL_AT + i * 8, WARPS + WARPS * 32);   // NoPE by warps, RoPE by threads
        mbar_init(smem0 + EMPTY_AT + i * 8, 2 * WARPS);
      }
      mbar_init_fence();
    }
    give_registers<GATHERER_REGS>();
    bar_sync(START_BARRIER, THREADS);
    Gatherer(a, w, smem0, warp & 3, lane).run();
    return;
  }
  prepare_queries(a, w, smem0, warp, lane);
  if (group == 0) {
    take_registers<LEFT_REGS>();
    bar_sync(START_BARRIER, THREADS);
    multiply_left(a, w, smem0, warp & 3, lane);
  } else {
    take_registers<RIGHT_REGS>();
    bar_sync(START_BARRIER, THREADS);
    multiply_right(a, w, smem0, warp & 3, lane);
  }
}
