// What kernels/nvfp4_msa/cuda/elect.cuh is on a GPU.
#pragma once
#include "ptx.cuh"

inline bool elect_one() {
  uint32_t lane = threadIdx.x % machine::kWarp;
  machine::collective("elect", lane, [](uint32_t**) {});
  return lane == 0;
}
