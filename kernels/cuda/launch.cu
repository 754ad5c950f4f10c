// Host side: tensor maps and launches, a plain C interface for ctypes. Launches go to the default queue.
#include <cudaTypedefs.h>
#include "fp4.cuh"
#include "fp8.cuh"

static PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static void* f = nullptr;
  cudaDriverEntryPointQueryResult r;
  if (!f) cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &r);
  return (PFN_cuTensorMapEncodeTiled_v12000)f;
}

static int make_map(CUtensorMap* m, const void* base, long rows, int row_bytes, int box_bytes, CUtensorMapSwizzle swizzle) {
  const cuuint64_t dims[2] = {(cuuint64_t)row_bytes, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)row_bytes};
  const cuuint32_t box[2] = {(cuuint32_t)box_bytes, TILE}, element[2] = {1, 1};
  return encoder()(m, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(base), dims, strides, box, element, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

template <class... P>
static int launch(void (*kernel)(P...), int threads, int smem, const Args* a, int blocks, P... params) {
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  if (!e && a->cluster > 8) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (e) return e;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = a->cluster;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t c = {};
  c.gridDim = dim3(a->cluster, blocks, a->groups);
  c.blockDim = threads;
  c.dynamicSmemBytes = smem;
  c.attrs = &cluster;
  c.numAttrs = 1;
  return cudaLaunchKernelEx(&c, kernel, params...);
}

struct Maps {
  const void* kv;
  long rows;
  CUtensorMap nope, rope;                                // 64-byte aligned
};

template <class L>
static int launch_fp8(const Maps* m, const Args* a, int blocks) {
  return launch(mla_fp8<L>, L::THREADS, L::SMEM, a, blocks, m->nope, m->rope, *a);
}

template <class L>
static int launch_fp4(const Args* a, int blocks) {
  return launch(mla_fp4<L>, L::THREADS, L::SMEM, a, blocks, *a);
}

template <class L>
static int clusters(int size) {
  auto kernel = mla_fp8<L>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::SMEM);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = size;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t c = {};
  c.gridDim = dim3(size, 256);
  c.blockDim = L::THREADS;
  c.dynamicSmemBytes = L::SMEM;
  c.attrs = &cluster;
  c.numAttrs = 1;
  int n = -1;
  cudaOccupancyMaxActiveClusters(&n, kernel, &c);
  return n;
}

extern "C" {
int mla_maps_size() { return sizeof(Maps); }

// variant 0: two warpgroups, five stages, one block per SM; 1: one warpgroup, two stages, two blocks per SM
int mla_fp8_run(int variant, Maps* m, const void* kv, long rows, const Args* a, int blocks) {
  if (m->kv != kv || m->rows != rows) {
    int e = make_map(&m->nope, kv, rows, D_QK, 128, CU_TENSOR_MAP_SWIZZLE_128B);
    if (!e) e = make_map(&m->rope, kv, rows, D_QK, 64, CU_TENSOR_MAP_SWIZZLE_64B);
    if (e) return e;
    m->kv = kv;
    m->rows = rows;
  }
  switch (variant) {
    case 0: return launch_fp8<Fp8<2, 5, 1, false>>(m, a, blocks);
    case 1: return launch_fp8<Fp8<1, 2, 2, false>>(m, a, blocks);
    case 2: return launch_fp8<Fp8<2, 5, 1, true>>(m, a, blocks);
  }
  return -1;
}
int mla_fp4_run(int variant, Maps*, const void*, long, const Args* a, int blocks) {
  switch (variant) {
    case 0: return launch_fp4<Fp4<2, 2, 4, 2, false, 120, 72>>(a, blocks);
    case 1: return launch_fp4<Fp4<2, 2, 4, 2, true, 120, 72>>(a, blocks);
  }
  return -1;
}
// Clusters of `size` blocks that fit on the device at once.
int mla_fp8_clusters(int variant, int size) {
  return variant == 0 ? clusters<Fp8<2, 5, 1, false>>(size) : variant == 1 ? clusters<Fp8<1, 2, 2, false>>(size) : clusters<Fp8<2, 5, 1, true>>(size);
}
#ifdef MLA_STAMPS
int mla_stamps(long long* host) { return cudaMemcpyFromSymbol(host, stamps, sizeof(stamps)); }
int mla_block_times(long long* host) { return cudaMemcpyFromSymbol(host, block_times, sizeof(block_times)); }
#endif
}
