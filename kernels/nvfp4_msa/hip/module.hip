// All files here as one translation unit, for `python -m gfx950 report kernels/nvfp4_msa/hip` and the like. A test holds this
// file to kernels/nvfp4_msa/hip_backend.py, which joins the same sources by itself at run time.
#include "../../hip/common.hip"
#include "../../hip/lds_dma.hip"
#include "../../hip/softmax.hip"
#include "../../hip/combine.hip"
#include "traits.hip"
#include "slots.hip"
#include "load.hip"
#include "query.hip"
#include "scores.hip"
#include "values.hip"
#include "merge.hip"
#include "decode.hip"

#ifdef INSTANTIATIONS  // the host side, see launch_table.hip
#include "arguments.h"
#include "launch.hip"
#include "../../hip/launch_table.hip"
#endif

#define KERNEL(...) template __global__ void nvfp4_decode<Traits{__VA_ARGS__}>( \
      const __bf16*, const u8*, const int*, const int*, const int*, const float*, const float*, __bf16*, __bf16*, float*, u32*, int, int, int, int, int, int, int, int, int, float);
KERNEL(3, 2, true)
KERNEL(3, 2, false)
KERNEL(2, 4, true)
KERNEL(2, 4, false)
#undef KERNEL
