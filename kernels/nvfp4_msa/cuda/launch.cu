// Host side of the kernel: tensor maps and launches, a plain C interface for ctypes. Launches go to the default queue.
#include "decode.cuh"

// Pages of two planes, K and V, of rows of `row_bytes`; a copy takes `box_rows` of one or both.
static int make_map(CUtensorMap* map, const void* cache, long pages, int kv_heads, int row_bytes, int box_rows, int box_planes,
                    CUtensorMapSwizzle swizzle) {
  const cuuint64_t plane_bytes = (cuuint64_t)kv_heads * PLANE * UNIT;
  const cuuint64_t dims[4] = {(cuuint64_t)row_bytes, plane_bytes / row_bytes, 2, (cuuint64_t)pages};
  const cuuint64_t strides[3] = {(cuuint64_t)row_bytes, plane_bytes, 2 * plane_bytes};
  const cuuint32_t box[4] = {(cuuint32_t)row_bytes, (cuuint32_t)box_rows, (cuuint32_t)box_planes, 1}, element[4] = {1, 1, 1, 1};
  return tensor_map_encoder()(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<void*>(cache), dims, strides, box, element, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

struct CacheMaps {                                // 64-byte aligned; remade when the cache lies elsewhere
  CUtensorMap codes, scales;
  const void* cache;
  long pages;

  int describe(const void* new_cache, long new_pages, int kv_heads, int box_planes) {
    if (cache == new_cache && pages == new_pages) return 0;
    int e = make_map(&codes, new_cache, new_pages, kv_heads, CODE_ROW, TILE * UNIT / CODE_ROW, box_planes, CU_TENSOR_MAP_SWIZZLE_128B);
    if (!e) e = make_map(&scales, new_cache, new_pages, kv_heads, SCALE_ROW, 1, box_planes, CU_TENSOR_MAP_SWIZZLE_NONE);
    if (e) return e;
    cache = new_cache;
    pages = new_pages;
    return 0;
  }
};

extern "C" {
int nvfp4_maps_bytes() { return sizeof(CacheMaps); }
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

// Queues one decode of a cache of `pages`. `maps` is zeroed before the first call and belongs to one variant and one number
// of KV heads. Returns a CUresult or cudaError.
int nvfp4_launch(int variant, CacheMaps* maps, long pages, const Args* a) {
  int error = cudaErrorInvalidValue;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 1 << a->split_bits;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1 << a->split_bits, a->kv_heads, a->rows);
  config.attrs = &cluster;
  config.numAttrs = a->split_bits ? 1 : 0;
  with_variant(variant, [&](auto* v) {
    using V = std::remove_pointer_t<decltype(v)>;
    error = maps->describe(a->cache, pages, a->kv_heads, V::Tiles::PLANES);
    if (error) return;
    config.blockDim = dim3(V::THREADS);
    config.dynamicSmemBytes = V::SMEM;
    error = cudaLaunchKernelEx(&config, nvfp4_decode<V>, maps->codes, maps->scales, *a);
  });
  return error;
}
}
