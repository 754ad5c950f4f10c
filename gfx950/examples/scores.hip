// Attention scores of 16 queries against a block of 64 keys, and the largest score of every query.
// Four waves; each takes every fourth key. Head dimension 32. Compile with -D BREAK_... to see a mistake caught.
#include <hip/hip_runtime.h>

typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
#define LDS __attribute__((address_space(3)))

constexpr int kQueries = 16, kKeys = 64, kDim = 32, kWaves = 4;

struct Shared {
  __bf16 keys[kKeys][kDim];           // 4096 bytes
  float largest[kWaves][kQueries];    // of each wave's keys
};

// out: f32 [16, n]. largest: f32 [blocks, 16]. q: bf16 [16, 32]. k: bf16 [n, 32]. One workgroup per 64 keys.
__global__ void __launch_bounds__(256) scores(float* out, float* largest, const __bf16* q, const __bf16* k, int n, float scale) {
  __shared__ Shared shared;
  const int tid = threadIdx.x, wave = tid / 64, lane = tid % 64, group = lane / 16, column = lane % 16;

  // Keys go straight into LDS, 16 bytes a lane; the buffer resource turns keys past the end into zeros.
  auto resource = __builtin_amdgcn_make_buffer_rsrc((void*)k, 0, n * kDim * 2, 0x27000);
  LDS char* destination = (LDS char*)&shared + __builtin_amdgcn_readfirstlane(wave) * 1024;
  __builtin_amdgcn_raw_ptr_buffer_load_lds(resource, (LDS void*)destination, 16, blockIdx.x * kKeys * kDim * 2 + tid * 16, 0, 0, 0);
#ifndef BREAK_WAIT
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#endif
  __builtin_amdgcn_s_barrier();

  // Lane l holds row l % 16 of A (queries) and of B (keys), elements 8 * (l / 16) onwards.
  const int key = kWaves * column + wave;
  const bf16x8 a = *(const bf16x8*)(q + column * kDim + 8 * group);
  const bf16x8 b = *(const bf16x8*)&shared.keys[key][8 * group];
  f32x4 score = __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, f32x4{}, 0, 0, 0);

  // Its result: lane l holds queries 4 * (l / 16) + 0..3 of key l % 16.
  for (int r = 0; r < 4; ++r) {
#ifdef BREAK_HAZARD
    asm volatile("v_mul_f32 %0, %1, %0" : "+v"(score[r]) : "v"(scale));
#else
    score[r] *= scale;
#endif
  }

  const bool valid = blockIdx.x * kKeys + key < n;
  for (int r = 0; r < 4; ++r) {
    float best = valid ? score[r] : -__builtin_huge_valf();
#ifdef BREAK_SHUFFLE
    if (valid)
#endif
      for (int mask = 1; mask < 16; mask *= 2) best = fmaxf(best, __shfl_xor(best, mask));
#ifdef BREAK_LDS
    if (column == 0) shared.largest[wave + 1][4 * group + r] = best;
#else
    if (column == 0) shared.largest[wave][4 * group + r] = best;
#endif
    if (valid) out[(4 * group + r) * n + blockIdx.x * kKeys + key] = score[r];
  }
#ifndef BREAK_BARRIER
  __syncthreads();
#endif
  if (tid < kQueries) {
    float best = shared.largest[0][tid];
    for (int w = 1; w < kWaves; ++w) best = fmaxf(best, shared.largest[w][tid]);
    largest[blockIdx.x * kQueries + tid] = best;
  }
}
