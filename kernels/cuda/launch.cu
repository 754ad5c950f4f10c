// Host side of the kernels: tensor maps and launches, a plain C interface for ctypes. Launches go to the default queue.
#include <cudaTypedefs.h>
#include "variants.cuh"

static PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static void* f = nullptr;
  cudaDriverEntryPointQueryResult r;
  if (!f) cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &r);
  return (PFN_cuTensorMapEncodeTiled_v12000)f;
}

static int make_map(CUtensorMap* m, const void* base, long rows, int box_bytes, int box_rows, CUtensorMapSwizzle swizzle) {
  const cuuint64_t dims[2] = {D_QK, (cuuint64_t)rows}, strides[1] = {D_QK};
  const cuuint32_t box[2] = {(cuuint32_t)box_bytes, (cuuint32_t)box_rows}, element[2] = {1, 1};
  return encoder()(m, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(base), dims, strides, box, element, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

struct Maps {                                     // 64-byte aligned; remade when what they describe changes
  CUtensorMap nope, rope;
  const void* kv;
  long rows;
  int box;
};

struct Launch {
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = {};
  template <class L>
  Launch(const L*, const Args& a, int blocks) {
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
static int launch_fp8(const Maps& maps, const Args& a, int blocks) {
  Launch launch((L*)nullptr, a, blocks);
  return cudaLaunchKernelEx(&launch.config, mla_fp8<L>, maps.nope, maps.rope, a);
}
template <class L>
static int launch_fp4(const Args& a, int blocks) {
  Launch launch((L*)nullptr, a, blocks);
  return cudaLaunchKernelEx(&launch.config, mla_fp4<L>, a);
}

extern "C" {
int mla_maps_bytes() { return sizeof(Maps); }
int mla_args_bytes() { return sizeof(Args); }

// Once per device and variant, before its first launch. Returns a cudaError.
int mla_prepare(int variant) {
  switch (variant) {
    case 0: return allow(mla_fp8<Wide>, Wide::SMEM);
    case 1: return allow(mla_fp8<Narrow>, Narrow::SMEM);
    case 2: return allow(mla_fp8<Paged>, Paged::SMEM);
    case 3: return allow(mla_fp4<Pairs2>, Pairs2::SMEM);
    case 4: return allow(mla_fp4<Pairs3>, Pairs3::SMEM);
    case 5: return allow(mla_fp4<Single2>, Single2::SMEM);
    case 6: return allow(mla_fp4<Single3>, Single3::SMEM);
  }
  return cudaErrorInvalidValue;
}

// Queues one decode. Of fp8 variants `maps` (zeroed before the first call) is refreshed when `kv` [kv_rows, 576] e4m3 lies elsewhere.
// Returns a CUresult or cudaError.
int mla_decode(int variant, Maps* maps, const void* kv, long kv_rows, const Args* a, int blocks) {
  const int box = variant == 2 && (1 << a->page_bits) < TILE ? 1 << a->page_bits : TILE;
  if (variant < FIRST_FP4 && (maps->kv != kv || maps->rows != kv_rows || maps->box != box)) {
    int e = make_map(&maps->nope, kv, kv_rows, 128, box, CU_TENSOR_MAP_SWIZZLE_128B);
    if (!e) e = make_map(&maps->rope, kv, kv_rows, 64, box, CU_TENSOR_MAP_SWIZZLE_64B);
    if (e) return e;
    maps->kv = kv;
    maps->rows = kv_rows;
    maps->box = box;
  }
  switch (variant) {
    case 0: return launch_fp8<Wide>(*maps, *a, blocks);
    case 1: return launch_fp8<Narrow>(*maps, *a, blocks);
    case 2: return launch_fp8<Paged>(*maps, *a, blocks);
    case 3: return launch_fp4<Pairs2>(*a, blocks);
    case 4: return launch_fp4<Pairs3>(*a, blocks);
    case 5: return launch_fp4<Single2>(*a, blocks);
    case 6: return launch_fp4<Single3>(*a, blocks);
  }
  return cudaErrorInvalidValue;
}
}
