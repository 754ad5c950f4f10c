// Host side: a plain C interface for ctypes. Launches go to the default queue.
#include <string.h>
#include "merge.cuh"
#include "sparse.cuh"

// The merge may be launched while the kernel before it runs; it waits for its end itself. (CUDA's name for it is long.)
static cudaLaunchAttribute programmatic_launch() {
  cudaLaunchAttribute attribute = {};
  const int allowed = 1;
  attribute.id = (cudaLaunchAttributeID)6;
  memcpy(&attribute.val, &allowed, sizeof allowed);
  return attribute;
}

static cudaLaunchConfig_t configuration(size_t blocks, int threads, int smem) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)blocks, 1, 1);
  config.blockDim = threads;
  config.dynamicSmemBytes = smem;
  return config;
}

extern "C" {
int sparse_args_bytes() { return sizeof(Args); }

// Once per device, before its first launch. Returns a cudaError.
int sparse_prepare() { return cudaFuncSetAttribute(sparse_v32, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES); }

// Queues one decode. Returns a cudaError.
int sparse_decode(const Args* a) {
  const cudaLaunchConfig_t config = configuration((size_t)a->tokens * a->splits * a->row_blocks, THREADS, SMEM_BYTES);
  const int error = cudaLaunchKernelEx(&config, sparse_v32, *a);
  if (error || a->splits == 1) return error;
  cudaLaunchAttribute attribute = programmatic_launch();
  cudaLaunchConfig_t merge = configuration(((size_t)a->tokens * a->heads * 2 + MERGE_WARPS - 1) / MERGE_WARPS, MERGE_WARPS * 32, 0);
  merge.attrs = &attribute;
  merge.numAttrs = 1;
  return cudaLaunchKernelEx(&merge, merge_splits, *a);
}
}
