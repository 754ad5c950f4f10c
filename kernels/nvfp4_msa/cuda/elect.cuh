// One thread of a warp.
#pragma once
#include "ptx.cuh"

// All threads of a warp, together: true in one of them. The compiler knows that it is one. Where it only sees a condition that one thread meets, it
// puts every tensor copy into a loop over the threads that might.
__device__ __forceinline__ bool elect_one() {
  uint32_t r;
  asm volatile("{\n.reg .pred P;\nelect.sync _|P, 0xffffffff;\nselp.u32 %0, 1, 0, P;\n}" : "=r"(r));
  return r;
}
