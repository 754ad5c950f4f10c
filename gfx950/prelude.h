// The part of HIP's device language that kernels use, for compiling without ROCm: names, meanings and generated code follow
// HIP's headers (hip/amd_detail), so that one source compiles against either. Vectors are clang's ext_vector_type; the
// mathematical functions are those the backend expands itself, because no device library is linked.
#pragma once
#ifndef HIP_INCLUDE_HIP_HIP_RUNTIME_H
#define HIP_INCLUDE_HIP_HIP_RUNTIME_H
#define GFX950_PRELUDE 1

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#ifndef __noinline__
#define __noinline__ __attribute__((noinline))
#endif

// __launch_bounds__(most work-items a workgroup has [, least waves per SIMD]). Clang's own launch_bounds attribute would leave
// the workgroup size at 1024 for the register allocator, which caps a lane at 128 VGPRs.
#define GFX950_LAUNCH_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define GFX950_LAUNCH_BOUNDS_2(threads, waves) GFX950_LAUNCH_BOUNDS_1(threads) __attribute__((amdgpu_waves_per_eu(waves)))
#define GFX950_LAUNCH_BOUNDS_PICK(threads, waves, name, ...) name
#define __launch_bounds__(...) \
  GFX950_LAUNCH_BOUNDS_PICK(__VA_ARGS__, GFX950_LAUNCH_BOUNDS_2, GFX950_LAUNCH_BOUNDS_1, )(__VA_ARGS__)

#define GFX950_FN static __device__ inline __attribute__((always_inline, unused))

typedef __SIZE_TYPE__ size_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;

#define GFX950_VECTOR(type, name)                                                                              \
  typedef type name##2 __attribute__((ext_vector_type(2)));                                                    \
  typedef type name##4 __attribute__((ext_vector_type(4)));                                                    \
  GFX950_FN name##2 make_##name##2(type x, type y) { return {x, y}; }                                          \
  GFX950_FN name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
GFX950_VECTOR(float, float)
GFX950_VECTOR(int, int)
GFX950_VECTOR(unsigned, uint)
GFX950_VECTOR(short, short)
GFX950_VECTOR(unsigned short, ushort)
#undef GFX950_VECTOR

// --- Where am I: read-only x, y, z of the work-item, workgroup, workgroup size and grid.
namespace gfx950_prelude {
typedef __attribute__((address_space(4))) const uint8_t* implicit_args;
// Code object V5 implicit arguments: block counts (3 x u32) at 0, workgroup sizes (3 x u16) at 12, remainders at 18.
GFX950_FN uint32_t block_count(int axis) {
  return ((__attribute__((address_space(4))) const uint32_t*)(implicit_args)__builtin_amdgcn_implicitarg_ptr())[axis];
}
GFX950_FN uint32_t block_size(int axis) {
  return ((__attribute__((address_space(4))) const uint16_t*)(implicit_args)__builtin_amdgcn_implicitarg_ptr())[6 + axis];
}
#define GFX950_COORDINATES(type, get_x, get_y, get_z)                 \
  struct type {                                                       \
    __declspec(property(get = read_x)) uint32_t x;                    \
    __declspec(property(get = read_y)) uint32_t y;                    \
    __declspec(property(get = read_z)) uint32_t z;                    \
    GFX950_METHOD uint32_t read_x() const { return get_x; }           \
    GFX950_METHOD uint32_t read_y() const { return get_y; }           \
    GFX950_METHOD uint32_t read_z() const { return get_z; }           \
  };
#define GFX950_METHOD __device__ inline __attribute__((always_inline))
GFX950_COORDINATES(thread_index, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z())
GFX950_COORDINATES(block_index, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z())
GFX950_COORDINATES(block_dimensions, block_size(0), block_size(1), block_size(2))
GFX950_COORDINATES(grid_dimensions, block_count(0), block_count(1), block_count(2))
#undef GFX950_COORDINATES
#undef GFX950_METHOD
}  // namespace gfx950_prelude

static constexpr __device__ gfx950_prelude::thread_index threadIdx{};
static constexpr __device__ gfx950_prelude::block_index blockIdx{};
static constexpr __device__ gfx950_prelude::block_dimensions blockDim{};
static constexpr __device__ gfx950_prelude::grid_dimensions gridDim{};
static constexpr int warpSize = 64;

GFX950_FN unsigned __lane_id() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }

// --- Order
GFX950_FN void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
GFX950_FN void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
GFX950_FN void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
GFX950_FN void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }

// --- Across the lanes of a wave. A lane that is masked off hands over 0: keep these out of divergent branches.
namespace gfx950_prelude {
template <typename T>
GFX950_FN T from_lane(int lane, T value) {
  static_assert(sizeof(T) % 4 == 0, "shuffles move whole 32-bit words");
  int words[sizeof(T) / 4];
  __builtin_memcpy(words, &value, sizeof(T));
  for (int& word : words) word = __builtin_amdgcn_ds_bpermute(lane << 2, word);
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}
}  // namespace gfx950_prelude

template <typename T>
GFX950_FN T __shfl(T value, int source_lane, int width = warpSize) {
  int self = __lane_id();
  return gfx950_prelude::from_lane((source_lane & (width - 1)) + (self & ~(width - 1)), value);
}
template <typename T>
GFX950_FN T __shfl_xor(T value, int mask, int width = warpSize) {
  int self = __lane_id(), lane = self ^ mask;
  return gfx950_prelude::from_lane(lane >= ((self + width) & ~(width - 1)) ? self : lane, value);
}
template <typename T>
GFX950_FN T __shfl_up(T value, unsigned delta, int width = warpSize) {
  int self = __lane_id(), lane = self - delta;
  return gfx950_prelude::from_lane(lane < (self & ~(width - 1)) ? self : lane, value);
}
template <typename T>
GFX950_FN T __shfl_down(T value, unsigned delta, int width = warpSize) {
  int self = __lane_id(), lane = self + delta;
  return gfx950_prelude::from_lane((int)((self & (width - 1)) + delta) >= width ? self : lane, value);
}
GFX950_FN unsigned long long __ballot(int predicate) { return __builtin_amdgcn_ballot_w64(predicate != 0); }
GFX950_FN int __any(int predicate) { return __ballot(predicate) != 0; }
GFX950_FN int __all(int predicate) { return __ballot(predicate == 0) == 0; }

// --- Atomics, device scope, no ordering (as in HIP)
template <typename T>
GFX950_FN T atomicAdd(T* address, T value) {
  return __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T>
GFX950_FN T atomicMax(T* address, T value) {
  return __hip_atomic_fetch_max(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T>
GFX950_FN T atomicMin(T* address, T value) {
  return __hip_atomic_fetch_min(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T>
GFX950_FN T atomicExch(T* address, T value) {
  return __hip_atomic_exchange(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T>
GFX950_FN T atomicCAS(T* address, T expected, T value) {
  __hip_atomic_compare_exchange_strong(address, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  return expected;
}

// --- Arithmetic
template <typename T>
GFX950_FN T min(T a, T b) { return b < a ? b : a; }
template <typename T>
GFX950_FN T max(T a, T b) { return a < b ? b : a; }
GFX950_FN int __popc(unsigned word) { return __builtin_popcount(word); }
GFX950_FN int __popcll(unsigned long long word) { return __builtin_popcountll(word); }
GFX950_FN int __ffs(unsigned word) { return __builtin_ffs(word); }
GFX950_FN int __ffsll(unsigned long long word) { return __builtin_ffsll(word); }
GFX950_FN int __clz(int word) { return word ? __builtin_clz(word) : 32; }
GFX950_FN float __uint_as_float(unsigned word) { return __builtin_bit_cast(float, word); }
GFX950_FN unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
GFX950_FN float __int_as_float(int word) { return __builtin_bit_cast(float, word); }
GFX950_FN int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
GFX950_FN float fabsf(float x) { return __builtin_fabsf(x); }
GFX950_FN float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
GFX950_FN float fminf(float x, float y) { return __builtin_fminf(x, y); }
GFX950_FN float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
GFX950_FN float floorf(float x) { return __builtin_floorf(x); }
GFX950_FN float ceilf(float x) { return __builtin_ceilf(x); }
GFX950_FN float rintf(float x) { return __builtin_rintf(x); }
GFX950_FN float sqrtf(float x) { return __builtin_sqrtf(x); }
GFX950_FN float rsqrtf(float x) { return __builtin_amdgcn_rsqf(x); }
GFX950_FN float expf(float x) { return __builtin_expf(x); }
GFX950_FN float exp2f(float x) { return __builtin_exp2f(x); }
GFX950_FN float logf(float x) { return __builtin_logf(x); }
GFX950_FN float log2f(float x) { return __builtin_log2f(x); }
GFX950_FN float __expf(float x) { return __builtin_amdgcn_exp2f(x * 1.4426950408889634f); }
GFX950_FN float __logf(float x) { return __builtin_amdgcn_logf(x) * 0.6931471805599453f; }

#undef GFX950_FN
#endif  // HIP_INCLUDE_HIP_HIP_RUNTIME_H
