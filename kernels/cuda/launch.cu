// Host side of the kernels: tensor maps and launches, a plain C interface for ctypes. Launches go to the default queue.
#include "variants.cuh"

static int make_map(CUtensorMap* m, const void* base, long rows, int row_bytes, int box_bytes, int box_rows, CUtensorMapSwizzle swizzle) {
  const cuuint64_t dims[2] = {(cuuint64_t)row_bytes, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)row_bytes};
  const cuuint32_t box[2] = {(cuuint32_t)box_bytes, (cuuint32_t)box_rows}, element[2] = {1, 1};
  return tensor_map_encoder()(m, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(base), dims, strides, box, element, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

struct Maps {                                     // 64-byte aligned; remade when what they describe changes
  CUtensorMap wide, rope;
  const void* kv;
  long rows;
  int row_bytes, box;

  int describe(const void* new_kv, long new_rows, int new_row_bytes, int new_box) {
    if (kv == new_kv && rows == new_rows && row_bytes == new_row_bytes && box == new_box) return 0;
    int e = make_map(&wide, new_kv, new_rows, new_row_bytes, 128, new_box, CU_TENSOR_MAP_SWIZZLE_128B);
    if (!e) e = make_map(&rope, new_kv, new_rows, new_row_bytes, 64, new_box, CU_TENSOR_MAP_SWIZZLE_64B);
    if (e) return e;
    kv = new_kv;
    rows = new_rows;
    row_bytes = new_row_bytes;
    box = new_box;
    return 0;
  }
};

template <class L>
struct Launch {
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = {};
  Launch(const Args& a, int blocks) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = a.cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3(a.cluster, blocks, a.groups);
    config.blockDim = L::THREADS;
    config.dynamicSmemBytes = L::SMEM;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
};

template <class Kernel>
static int allow(Kernel* kernel, int smem) {
  const int e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  return e ? e : cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}
template <class L>
static int prepare(L*) {
  if constexpr (L::KV == Kv::e5m2)
    return allow(mla_unpacked<L>, L::SMEM);
  else
    return allow(mla_direct<L>, L::SMEM);
}
template <class L>
static int decode(L*, Maps* maps, const void* kv, long rows, const Args& a, int blocks) {
  Launch<L> launch(a, blocks);
  if constexpr (L::KV == Kv::e5m2) {
    return cudaLaunchKernelEx(&launch.config, mla_unpacked<L>, a);
  } else {
    const int page = 1 << a.page_bits, e = maps->describe(kv, rows, L::BYTES / TILE, L::PAGED && page < TILE ? page : TILE);
    return e ? e : cudaLaunchKernelEx(&launch.config, mla_direct<L>, maps->wide, maps->rope, a);
  }
}

extern "C" {
int mla_maps_bytes() { return sizeof(Maps); }
int mla_args_bytes() { return sizeof(Args); }

// Once per device and variant, before its first launch. Returns a cudaError.
int mla_prepare(int variant) {
  int error = cudaErrorInvalidValue;
  with_variant(variant, [&](auto* v) { error = prepare(v); });
  return error;
}

// Queues one decode. `maps` (zeroed before the first call) is refreshed when `kv`, the rows of the cache, lies elsewhere; mxfp4 variants
// leave it alone. Returns a CUresult or cudaError.
int mla_decode(int variant, Maps* maps, const void* kv, long kv_rows, const Args* a, int blocks) {
  int error = cudaErrorInvalidValue;
  with_variant(variant, [&](auto* v) { error = decode(v, maps, kv, kv_rows, *a, blocks); });
  return error;
}
}
