// Programs without a fault, each with one thing that the kernels do: what compute-sanitizer says of these it cannot be asked about the kernels.
//   control NAME    runs one; exit code 1 if its result is wrong
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace cg = cooperative_groups;
constexpr int THREADS = 128, BYTES = THREADS * 4, ROUNDS = 8;

static __device__ uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
static __device__ void init(uint64_t* bar, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(bar)), "r"(count) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
static __device__ void expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address(bar)), "r"(bytes) : "memory");
}
static __device__ void arrive(uint64_t* bar) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address(bar)) : "memory"); }
static __device__ void wait(uint64_t* bar, uint32_t parity) {
  asm volatile("{\n.reg .pred P;\nW: mbarrier.try_wait.parity.shared.b64 P, [%0], %1;\n@P bra D;\nbra W;\nD:\n}" ::"r"(address(bar)), "r"(parity)
               : "memory");
}
static __device__ uint32_t in_block(const void* p, uint32_t rank) {
  uint32_t r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address(p)), "r"(rank));
  return r;
}

// An ordinary store to another block's shared memory, by the library's own means.
__global__ void __cluster_dims__(2) stores(const int* in, int* out) {
  __shared__ int box[THREADS];
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  cluster.map_shared_rank(box, cluster.block_rank() ^ 1)[threadIdx.x] = in[threadIdx.x];
  cluster.sync();
  out[blockIdx.x * THREADS + threadIdx.x] = box[threadIdx.x];
}

// Stores that the receiver's mbarrier counts.
__global__ void __cluster_dims__(2) counted_stores(const int* in, int* out) {
  __shared__ int box[THREADS];
  __shared__ uint64_t bar;
  cg::cluster_group cluster = cg::this_cluster();
  const uint32_t other = cluster.block_rank() ^ 1;
  if (threadIdx.x == 0) {
    init(&bar, 1);
    expect(&bar, BYTES);
  }
  cluster.sync();
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(in_block(box + threadIdx.x, other)),
               "r"(in[threadIdx.x]), "r"(in_block(&bar, other))
               : "memory");
  wait(&bar, 0);
  out[blockIdx.x * THREADS + threadIdx.x] = box[threadIdx.x];
  cluster.sync();
}

// Stores of 16 bytes that the receiver's mbarrier counts.
static __device__ void store_16(const int* from, int* to, uint64_t* bar, uint32_t receiver) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(in_block(to, receiver)),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "r"(in_block(bar, receiver))
               : "memory");
}
static __device__ void store_wide(const int* in, int* out, uint32_t receiver) {
  __shared__ alignas(16) int box[THREADS];
  __shared__ uint64_t bar;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) {
    init(&bar, 1);
    expect(&bar, BYTES);
  }
  cluster.sync();
  if (threadIdx.x < THREADS / 4) store_16(in + threadIdx.x * 4, box + threadIdx.x * 4, &bar, receiver);
  wait(&bar, 0);
  out[blockIdx.x * THREADS + threadIdx.x] = box[threadIdx.x];
  cluster.sync();
}
__global__ void __cluster_dims__(2) wide_stores(const int* in, int* out) { store_wide(in, out, cg::this_cluster().block_rank() ^ 1); }
// The receiver is the sender.
__global__ void __cluster_dims__(2) wide_kept(const int* in, int* out) { store_wide(in, out, cg::this_cluster().block_rank()); }

// The same to both blocks, which meet once, before, and by a relaxed arrival: each owns half of the numbers and writes what both have of these.
// Half of a block's threads do not wait for what comes, and no block for the other's end.
__global__ void __cluster_dims__(2) parted(const int* in, int* out) {
  constexpr int HALF = THREADS / 2;
  __shared__ alignas(16) int box[2][HALF];
  __shared__ uint64_t bar;
  const int i = threadIdx.x, rank = cg::this_cluster().block_rank();
  if (i == 0) {
    init(&bar, 1);
    expect(&bar, BYTES);
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
  if (i < THREADS / 4) store_16(in + i * 4, box[rank] + i * 4 % HALF, &bar, i * 4 / HALF);
  if (i >= HALF) return;
  wait(&bar, 0);
  for (int source = 0; source < 2; source++) out[source * THREADS + rank * HALF + i] = box[source][i];
}

// A bulk copy from shared memory to that of a block of the cluster.
static __device__ void bulk_copy(const int* in, int* out, uint32_t receiver) {
  __shared__ alignas(16) int from[THREADS], box[THREADS];
  __shared__ uint64_t bar;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) {
    init(&bar, 1);
    expect(&bar, BYTES);
  }
  from[threadIdx.x] = in[threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  cluster.sync();
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(in_block(box, receiver)),
                 "r"(address(from)), "r"(BYTES), "r"(in_block(&bar, receiver))
                 : "memory");
  wait(&bar, 0);
  out[blockIdx.x * THREADS + threadIdx.x] = box[threadIdx.x];
  cluster.sync();
}
__global__ void __cluster_dims__(2) bulk_stores(const int* in, int* out) { bulk_copy(in, out, cg::this_cluster().block_rank() ^ 1); }
// The receiver is the sender.
__global__ void __cluster_dims__(2) bulk_kept(const int* in, int* out) { bulk_copy(in, out, cg::this_cluster().block_rank()); }

// Bulk copies from global memory to one place, again and again: one mbarrier says that it is full, another that all have read it.
__global__ void loads(const int* in, int* out) {
  __shared__ alignas(16) int box[THREADS];
  __shared__ uint64_t full, empty;
  if (threadIdx.x == 0) {
    init(&full, 1);
    init(&empty, THREADS);
  }
  __syncthreads();
  int sum = 0;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    if (threadIdx.x == 0) {
      if (round) wait(&empty, (round - 1) & 1);
      expect(&full, BYTES);
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(box)), "l"(in), "r"(BYTES),
                   "r"(address(&full))
                   : "memory");
    }
    wait(&full, round & 1);
    sum += box[threadIdx.x];
    arrive(&empty);
  }
  out[blockIdx.x * THREADS + threadIdx.x] = sum / ROUNDS;
}

// Bulk copies to a place of each warp's own, again and again: that all lanes have read it, a __syncwarp says.
static __device__ int copied_by_warp(const int* in, int* box) {
  __shared__ uint64_t full[THREADS / 32];
  const int i = threadIdx.x, lane = i & 31;
  uint64_t* bar = full + (i >> 5);
  if (lane == 0) init(bar, 1);
  __syncwarp();
  int sum = 0;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    if (lane == 0) {
      expect(bar, 128);
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(box + i)), "l"(in + i),
                   "r"(128), "r"(address(bar))
                   : "memory");
    }
    wait(bar, round & 1);
    sum += box[i ^ 1];
    __syncwarp();
  }
  return sum / ROUNDS ^ 1;
}
__global__ void refilled(const int* in, int* out) {
  __shared__ alignas(128) int box[THREADS];
  out[blockIdx.x * THREADS + threadIdx.x] = copied_by_warp(in, box);
}
// What a warp makes of its copies overlays them, for all to read.
__global__ void overlaid(const int* in, int* out) {
  __shared__ alignas(128) int box[THREADS];
  const int i = threadIdx.x, mine = copied_by_warp(in, box);
  box[i] = mine;
  asm volatile("bar.sync 1, 128;" ::: "memory");
  out[blockIdx.x * THREADS + i] = box[i ^ 32] ^ 32;
}

// Copies past the registers: an mbarrier says when those of all lanes of a warp are there.
__global__ void copied(const int* in, int* out) {
  __shared__ alignas(16) int box[THREADS];
  __shared__ uint64_t full;
  const int i = threadIdx.x;
  if (i == 0) init(&full, 32);
  __syncthreads();
  if (i < 32) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address(box + i * 4)), "l"(in + i * 4) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address(&full)) : "memory");
  }
  wait(&full, 0);
  out[blockIdx.x * THREADS + i] = box[i];
}

// One warp writes, another reads, and only an mbarrier stands between them.
__global__ void handed_over(const int* in, int* out) {
  __shared__ int box[32];
  __shared__ uint64_t full;
  if (threadIdx.x == 0) init(&full, 32);
  __syncthreads();
  if (threadIdx.x < 32) {
    box[threadIdx.x] = in[threadIdx.x];
    arrive(&full);
  }
  wait(&full, 0);
  out[blockIdx.x * THREADS + threadIdx.x] = box[threadIdx.x & 31] + (threadIdx.x & ~31);
}

// The same, and after the warp has met one lane arrives for all of it.
__global__ void spoken_for(const int* in, int* out) {
  __shared__ int box[32];
  __shared__ uint64_t full;
  if (threadIdx.x == 0) init(&full, 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    box[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) arrive(&full);
  }
  wait(&full, 0);
  out[blockIdx.x * THREADS + threadIdx.x] = box[threadIdx.x & 31] + (threadIdx.x & ~31);
}

// Three warps write late and announce it at a named barrier, where the fourth has waited for them and reads: the PTX ISA's producers and consumer.
__global__ void announced(const int* in, int* out) {
  __shared__ int box[THREADS];
  const int i = threadIdx.x;
  if (i < 96) {
    __nanosleep(2000);
    box[i] = in[i];
    asm volatile("bar.arrive 1, 128;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 128;" ::: "memory");
    for (int from = i - 96; from < 96; from += 32) out[blockIdx.x * THREADS + from] = box[from];
    out[blockIdx.x * THREADS + i] = i;
  }
}

// The same, and the reader answers: it announces what it has made at another barrier, where the writers wait for it.
__global__ void answered(const int* in, int* out) {
  __shared__ int box[96], answer[32];
  const int i = threadIdx.x;
  if (i < 96) {
    box[i] = in[i];
    asm volatile("bar.arrive 1, 128;" ::: "memory");
    __nanosleep(2000);
    asm volatile("bar.sync 2, 128;" ::: "memory");
    out[blockIdx.x * THREADS + i] = answer[i & 31] + (i & ~31);
  } else {
    asm volatile("bar.sync 1, 128;" ::: "memory");
    const int lane = i - 96;
    answer[lane] = (box[lane] + box[lane + 32] + box[lane + 64] - 96) / 3;
    asm volatile("bar.arrive 2, 128;" ::: "memory");
    out[blockIdx.x * THREADS + i] = i;
  }
}

// The writers have met among themselves before, at a barrier that says whether one of them wishes something.
__global__ void voted(const int* in, int* out) {
  __shared__ int box[96];
  const int i = threadIdx.x;
  if (i < 96) {
    int wish;
    asm volatile("{.reg .pred p, q; setp.gt.s32 q, %1, 1000; bar.red.or.pred p, 2, 96, q; selp.s32 %0, 1, 0, p;}" : "=r"(wish) : "r"(in[i]) : "memory");
    box[i] = in[i] + wish;
    asm volatile("bar.arrive 1, 128;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 128;" ::: "memory");
    for (int from = i - 96; from < 96; from += 32) out[blockIdx.x * THREADS + from] = box[from];
    out[blockIdx.x * THREADS + i] = i;
  }
}

// One warp has left when the others exchange what they have, at a barrier that counts only them.
__global__ void left_early(const int* in, int* out) {
  __shared__ int box[96];
  const int i = threadIdx.x;
  if (i >= 96) {
    out[blockIdx.x * THREADS + i] = i;
    return;
  }
  __nanosleep(2000);
  box[i] = in[(i + 64) % 96];
  asm volatile("bar.sync 1, 96;" ::: "memory");
  out[blockIdx.x * THREADS + i] = box[(i + 32) % 96];
}

// The first two warps meet at a barrier of their own more often than the other two at theirs; then all exchange what they have.
__global__ void met_unevenly(const int* in, int* out) {
  __shared__ int box[THREADS];
  const int i = threadIdx.x, half = i >> 6;
  for (int round = 0; round < (half ? 1 : 3); round++) asm volatile("bar.sync %0, 64;" ::"r"(1 + half) : "memory");
  box[i] = in[i ^ 64];
  asm volatile("bar.sync 3, 128;" ::: "memory");
  out[blockIdx.x * THREADS + i] = box[i ^ 64];
}

// Warps that meet at one barrier come from different places in the code.
__global__ void specialised(const int* in, int* out) {
  __shared__ int box[THREADS];
  const int i = threadIdx.x;
  if (i < 32) {
    box[i] = in[i] * 2;
    asm volatile("bar.sync 1, 128;" ::: "memory");
    out[blockIdx.x * THREADS + i] = box[i + 32];
  } else {
    box[i] = in[i] - 32;
    asm volatile("bar.sync 1, 128;" ::: "memory");
    out[blockIdx.x * THREADS + i] = box[i] + box[i & 31] - 2 * (i & 31) + 32;
  }
}

int main(int argc, char** argv) {
  const struct { const char* name; void (*kernel)(const int*, int*); } programs[] = {
      {"stores", stores}, {"counted_stores", counted_stores}, {"wide_stores", wide_stores}, {"wide_kept", wide_kept}, {"parted", parted},
      {"bulk_stores", bulk_stores}, {"bulk_kept", bulk_kept}, {"loads", loads}, {"refilled", refilled}, {"overlaid", overlaid}, {"copied", copied},
      {"handed_over", handed_over}, {"spoken_for", spoken_for}, {"announced", announced}, {"answered", answered}, {"voted", voted},
      {"left_early", left_early}, {"met_unevenly", met_unevenly}, {"specialised", specialised}};
  for (const auto& program : programs) {
    if (argc < 2 || strcmp(argv[1], program.name)) continue;
    int host[2 * THREADS], *in, *out;
    cudaMalloc(&in, BYTES);
    cudaMalloc(&out, 2 * BYTES);
    for (int i = 0; i < THREADS; i++) host[i] = i;
    cudaMemcpy(in, host, BYTES, cudaMemcpyHostToDevice);
    program.kernel<<<2, THREADS>>>(in, out);
    if (cudaMemcpy(host, out, 2 * BYTES, cudaMemcpyDeviceToHost)) return puts(cudaGetErrorString(cudaGetLastError())), 1;
    for (int i = 0; i < 2 * THREADS; i++)
      if (host[i] != i % THREADS) return printf("element %d is %d\n", i, host[i]), 1;
    return 0;
  }
  return puts("no such program"), 2;
}
