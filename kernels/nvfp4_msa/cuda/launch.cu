// Host side of the kernel: the tensor map and launches, a plain C interface for ctypes. Launches go to the default queue.
#include <cudaTypedefs.h>
#include "decode.cuh"

static PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static void* f = nullptr;
  cudaDriverEntryPointQueryResult r;
  if (!f) cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &r);
  return (PFN_cuTensorMapEncodeTiled_v12000)f;
}

struct CacheMap {                                 // 64-byte aligned; remade when the cache lies elsewhere
  CUtensorMap map;
  const void* cache;
  long units;

  // The cache as [units, 64] bytes, read in boxes of a tile's codes.
  int describe(const void* new_cache, long new_units) {
    if (cache == new_cache && units == new_units) return 0;
    const cuuint64_t dims[2] = {UNIT, (cuuint64_t)new_units}, strides[1] = {UNIT};
    const cuuint32_t box[2] = {UNIT, TILE}, element[2] = {1, 1};
    const int e = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(new_cache), dims, strides, box, element,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (e) return e;
    cache = new_cache;
    units = new_units;
    return 0;
  }
};

extern "C" {
int nvfp4_map_bytes() { return sizeof(CacheMap); }
int nvfp4_args_bytes() { return sizeof(Args); }

// Once per device and variant, before its first launch. Returns a cudaError.
int nvfp4_prepare(int variant) {
  int error = cudaErrorInvalidValue;
  with_variant(variant, [&](auto* v) {
    using V = std::remove_pointer_t<decltype(v)>;
    error = cudaFuncSetAttribute(nvfp4_decode<V>, cudaFuncAttributeMaxDynamicSharedMemorySize, V::SMEM);
    if (!error) error = cudaFuncSetAttribute(nvfp4_decode<V>, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  });
  return error;
}

// Queues one decode of a cache of `units` times 64 bytes. `map` is zeroed before the first call. Returns a CUresult or cudaError.
int nvfp4_launch(int variant, CacheMap* map, long units, const Args* a) {
  int error = map->describe(a->cache, units);
  if (error) return error;
  error = cudaErrorInvalidValue;
  const dim3 grid(a->splits, min(a->pairs, PAIRS_IN_Y), (a->pairs + PAIRS_IN_Y - 1) / PAIRS_IN_Y);
  with_variant(variant, [&](auto* v) {
    using V = std::remove_pointer_t<decltype(v)>;
    nvfp4_decode<V><<<grid, THREADS, V::SMEM>>>(map->map, *a);
    error = cudaGetLastError();
  });
  return error;
}
}
