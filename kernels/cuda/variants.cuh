// The kernels that are compiled, by the number that mla_decode takes.
#pragma once
#include "direct.cuh"
#include "unpacked.cuh"

using Wide = Direct<Kv::e4m3, 2, 5, 1, false>;         // 0: two warpgroups and five stages, one block per SM
using Narrow = Direct<Kv::e4m3, 1, 2, 2, false>;       // 1: one warpgroup and two stages, two blocks per SM
using Paged = Direct<Kv::e4m3, 2, 5, 1, true>;         // 2
using Bf16 = Direct<Kv::bf16, 2, 2, 1, false>;         // 3
using Bf16Paged = Direct<Kv::bf16, 2, 2, 1, true>;     // 4
using Mxfp4 = Unpacked<3, 5>;                          // 5

// Calls `f` with a null pointer to the type of a variant; false for a number that has none.
template <class F>
bool with_variant(int variant, F&& f) {
  switch (variant) {
    case 0: f((Wide*)nullptr); return true;
    case 1: f((Narrow*)nullptr); return true;
    case 2: f((Paged*)nullptr); return true;
    case 3: f((Bf16*)nullptr); return true;
    case 4: f((Bf16Paged*)nullptr); return true;
    case 5: f((Mxfp4*)nullptr); return true;
  }
  return false;
}
