// The kernels that are compiled, by the number that mla_decode takes.
#pragma once
#include "fp4.cuh"
#include "fp8.cuh"

using Wide = Fp8<2, 5, 1, false, false>;          // 0: two warpgroups and five stages, one block per SM
using Narrow = Fp8<1, 2, 2, false, false>;        // 1: one warpgroup and two stages, two blocks per SM
using Paged = Fp8<2, 5, 1, false, true>;          // 2
using Pairs2 = Fp4<2, 2, 2, 6, 128, 64, 3>;        // 3: mxfp4, many packed tiles
using Pairs3 = Fp4<3, 2, 3, 4, 112, 32, 3>;        // 4: three multiplying warpgroups
using Single2 = Fp4<2, 1, 2, 6, 0, 0, 3>;          // 5: one unpacking warpgroup
using Single3 = Fp4<3, 1, 3, 4, 112, 48, 3>;       // 6
constexpr int FIRST_FP4 = 3;
