// Host side of the fp8 kernels: tensor maps and launches, a plain C interface for ctypes. Launches go to the default queue.
#include <cudaTypedefs.h>
#include "fp8.cuh"

static PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static void* f = nullptr;
  cudaDriverEntryPointQueryResult r;
  if (!f) cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &r);
  return (PFN_cuTensorMapEncodeTiled_v12000)f;
}

static int make_map(CUtensorMap* m, const void* base, long rows, int box_bytes, CUtensorMapSwizzle swizzle) {
  const cuuint64_t dims[2] = {D_QK, (cuuint64_t)rows}, strides[1] = {D_QK};
  const cuuint32_t box[2] = {(cuuint32_t)box_bytes, TILE}, element[2] = {1, 1};
  return encoder()(m, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(base), dims, strides, box, element, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

using Wide = Fp8<2, 5, 1, false>;     // two warpgroups and five stages: one block per SM
using Narrow = Fp8<1, 2, 2, false>;   // one warpgroup and two stages: two blocks per SM

struct Launch {
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = {};
  Launch(int threads, int smem, int cluster, int blocks, int groups) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3(cluster, blocks, groups);
    config.blockDim = threads;
    config.dynamicSmemBytes = smem;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
};

template <class L>
static int prepare() {
  const int e = cudaFuncSetAttribute(mla_fp8<L>, cudaFuncAttributeMaxDynamicSharedMemorySize, L::SMEM);
  return e ? e : cudaFuncSetAttribute(mla_fp8<L>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}

struct Maps {                         // 64-byte aligned
  CUtensorMap nope, rope;
  const void* kv;
  long rows;
};

extern "C" {
int mla_maps_bytes() { return sizeof(Maps); }
int mla_args_bytes() { return sizeof(Args); }

// Once per device, before anything else. Returns a cudaError.
int mla_prepare() {
  const int e = prepare<Wide>();
  return e ? e : prepare<Narrow>();
}

// Queues one decode. `maps` (zeroed before the first call) is refreshed when `kv` [kv_rows, 576] e4m3 lies elsewhere. Returns a
// CUresult or cudaError.
int mla_decode(int narrow, Maps* maps, const void* kv, long kv_rows, const Args* a, int blocks) {
  if (maps->kv != kv || maps->rows != kv_rows) {
    int e = make_map(&maps->nope, kv, kv_rows, 128, CU_TENSOR_MAP_SWIZZLE_128B);
    if (!e) e = make_map(&maps->rope, kv, kv_rows, 64, CU_TENSOR_MAP_SWIZZLE_64B);
    if (e) return e;
    maps->kv = kv;
    maps->rows = kv_rows;
  }
  if (narrow) {
    Launch launch(Narrow::THREADS, Narrow::SMEM, a->cluster, blocks, a->groups);
    return cudaLaunchKernelEx(&launch.config, mla_fp8<Narrow>, maps->nope, maps->rope, *a);
  }
  Launch launch(Wide::THREADS, Wide::SMEM, a->cluster, blocks, a->groups);
  return cudaLaunchKernelEx(&launch.config, mla_fp8<Wide>, maps->nope, maps->rope, *a);
}
#ifdef MLA_STAMPS
int mla_stamps(long long* host) { return cudaMemcpyFromSymbol(host, stamps, sizeof(stamps)); }
int mla_block_times(long long* host) { return cudaMemcpyFromSymbol(host, block_times, sizeof(block_times)); }
#endif
}
