// All files here as one translation unit, for `python -m gfx950 report kernels/hip` and the like. A test holds this file to
// kernels/hip_backend.py, which joins the same sources by itself at run time: these kernels are those that dispatch reaches.
#include "common.hip"
#include "lds_dma.hip"
#include "softmax.hip"
#include "combine.hip"
#include "traits.hip"
#include "load.hip"
#include "block_scales.hip"
#include "query.hip"
#include "scores.hip"
#include "remainder.hip"
#include "values.hip"
#include "output.hip"
#include "decode.hip"

#ifdef INSTANTIATIONS  // the host side, see launch_table.hip
#include "arguments.h"
#include "launch.hip"
#include "launch_table.hip"
#endif

#define KERNEL(...) template __global__ void mla_decode<Traits{__VA_ARGS__}>( \
      const __bf16*, const u8*, const u8*, const int*, const int*, const int*, __bf16*, __bf16*, float*, u32*, int, int, int, int, int, float);
KERNEL(kFp8, 1, 3, 32, 2, false, false, false, false, true, true)
KERNEL(kMxfp4, 1, 3, 64, 2, false, false, false, false, true, true)
KERNEL(kFp8, 2, 2, 32, 2, false, false, false, false, true, false)
KERNEL(kFp8, 2, 2, 32, 2, false, false, false, false, true, true)
KERNEL(kFp8, 1, 2, 32, 3, false, false, false, false, true, false)
#undef KERNEL
