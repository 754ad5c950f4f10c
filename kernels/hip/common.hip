// What all kernels of gfx950 here share: short names, the workgroup of 4 waves, waiting. This file comes first.
#include <hip/hip_runtime.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef short i16x2 __attribute__((ext_vector_type(2)));
typedef unsigned short u16x2 __attribute__((ext_vector_type(2)));
typedef int i32x2 __attribute__((ext_vector_type(2)));
typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x8 __attribute__((ext_vector_type(8)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf16x2 __attribute__((ext_vector_type(2)));
typedef __bf16 bf16x4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));

#define DEVICE static __device__ __forceinline__
#define MEMBER __device__ __forceinline__
#define LDS __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))

constexpr int kThreads = 256, kWaves = 4;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kInfinity = __builtin_huge_valf();

// Where this lane stands.
struct Lane {
  int wave, lane, column, group;
  MEMBER Lane() : wave(__builtin_amdgcn_readfirstlane(threadIdx.x / 64)), lane(threadIdx.x % 64), column(lane % 16), group(lane / 16) {}
};

template <int kLeft>
DEVICE void wait_loads() {
  asm volatile("s_waitcnt vmcnt(%0)" ::"n"(kLeft) : "memory");
}

// Orders LDS between the waves, and leaves global loads in flight, which __syncthreads() would wait for.
DEVICE void barrier() {
  asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
  __builtin_amdgcn_s_barrier();
  asm volatile("" ::: "memory");
}
