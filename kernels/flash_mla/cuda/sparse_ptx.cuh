// PTX instructions of sm_90a that the kernels of this folder need beside those of kernels/cuda/ptx.cuh: on a CPU another file of this name
// takes its place.
#pragma once
#include "ptx.cuh"

// Of memory that nobody writes meanwhile.
__device__ __forceinline__ void ld_global(uint32_t& x, const void* p) {
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(x) : "l"(p));
}
__device__ __forceinline__ void ld_global(uint32_t (&x)[4], const void* p) {
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(p));
}
__device__ __forceinline__ void st_global(void* p, const uint32_t (&x)[4]) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
}
__device__ __forceinline__ float ld_shared_f32(uint32_t addr) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(addr));
  return x;
}
__device__ __forceinline__ void ld_shared_pair(uint32_t (&x)[2], uint32_t addr) {
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(addr));
}
__device__ __forceinline__ void st_shared_pair(uint32_t addr, const uint32_t (&x)[2]) {
  asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(addr), "r"(x[0]), "r"(x[1]) : "memory");
}
// 16 bytes past the registers; the mbarrier counts an arrival of this thread when all copies that it started before are there.
__device__ __forceinline__ void copy_16(uint32_t dst, const void* src) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
__device__ __forceinline__ void arrive_when_copied(uint32_t bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}
// Programmatic dependent launch: kernels after this one may start; what the kernel before this one wrote is there.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void await_dependencies() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

#define ACCUMULATORS_8(i)                                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACCUMULATORS_32(i) ACCUMULATORS_8(i), ACCUMULATORS_8(i + 8), ACCUMULATORS_8(i + 16), ACCUMULATORS_8(i + 24)

// D[64, 64] (+)= A[64, 16] B[64, 16]^T, both operands in shared memory; `accumulate` 0 starts from zero.
#define WGMMA_N64(NAME, INSTRUCTION)                                                                            \
  __device__ __forceinline__ void NAME(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned." INSTRUCTION          \
                 " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                     \
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n}" \
                 : ACCUMULATORS_32(0)                                                                           \
                 : "l"(a), "l"(b), "r"(accumulate));                                                            \
  }
WGMMA_N64(wgmma_f16, "m64n64k16.f32.f16.f16")
WGMMA_N64(wgmma_bf16, "m64n64k16.f32.bf16.bf16")
// D[64, 256] += A[64, 16] B[16, 256]: A in registers, B in shared memory with its columns contiguous.
__device__ __forceinline__ void wgmma_f16(float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
      "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
      "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
      "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
      "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
      "}, {%128,%129,%130,%131}, %132, 1, 1, 1, 1;"
      : ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_32(64), ACCUMULATORS_32(96)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// All but the latest PENDING groups are complete, and with them `d`.
template <int PENDING, int N>
__device__ __forceinline__ void wgmma_wait(float (&d)[N]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
