// One tile of 32 tokens: scores, online softmax, output.
#pragma once
#include "query.cuh"

// P is relative to 2^7 times the largest weight so far, and the output is rescaled only when an element of P reaches 2, which its bit 14
// shows. P down to 2^-7 of the largest weight has all bits of an f16, and what is smaller still 2^-17 of it.
constexpr float HEADROOM = 7.f;
constexpr uint32_t F16_AT_LEAST_2 = 0x40004000u;
constexpr uint32_t F16_ONES = 0x3C003C00u;

// State of one warp. Lane (g, c) = (lane / 4, lane % 4) holds rows g (index 0) and g + 8 (index 1).
struct Softmax {
  float scale[2];              // score -> log2 units
  float m[2];                  // what P is relative to, log2 units
  float l[4];                  // an m16n8 tile whose columns all are the sum of P: [0] of row g, [2] of row g + 8
  // [4 u + i]: an m16n8 tile of dims 32 u + 4 n + i; element 2 h + b is row g + 8 h, dim 32 u + 8 c + 4 b + i.
  float acc[16][4];

  __device__ __forceinline__ Softmax(const Query& q, float sm_scale) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      scale[h] = q.power[h] * sm_scale * (LOG2E * UNPACKED_UNIT);
      m[h] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      l[i] = 0.f;
#pragma unroll
      for (int t = 0; t < 16; t++) acc[t][i] = 0.f;
    }
  }
};

// s[j][2 h + b]: row g + 8 h, token 8 j + 2 c + b. AT_ONCE tiles of 8 tokens share what is loaded of the queries.
template <int AT_ONCE, class Q>
__device__ __forceinline__ void tile_scores(float (&s)[4][4], const Q& q, uint32_t stage, const Places& at) {
#pragma unroll
  for (int first = 0; first < 4; first += AT_ONCE) {
    uint32_t x[AT_ONCE][4], scale[AT_ONCE];              // of dims 32 c to + 15 and + 16 to + 31
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
      ld_shared(x[j], stage + at.k_codes + (first + j) * 8 * UNIT);
      scale[j] = e4m3x2_to_f16x2((uint16_t)ld_shared_u16(stage + at.k_scales + (first + j) * 8 * 8));
#pragma unroll
      for (int i = 0; i < 4; i++) s[first + j][i] = 0.f;
    }
#pragma unroll
    for (int w = 0; w < 4; w++) {
      uint32_t queries[2][4];
      q.load(queries[0], 2 * w);
      q.load(queries[1], 2 * w + 1);
#pragma unroll
      for (int j = 0; j < AT_ONCE; j++) {
        uint32_t f[4];
        unpack_codes(f, x[j][w]);
#pragma unroll
        for (int i = 0; i < 4; i++) f[i] = mul_f16x2(f[i], w < 2 ? low_twice(scale[j]) : high_twice(scale[j]));
        mma_f16(s[first + j], queries[0], f[0], f[1]);
        mma_f16(s[first + j], queries[1], f[2], f[3]);
      }
    }
  }
}

__device__ __forceinline__ void hide_tokens(float (&s)[4][4], int visible, int lane) {
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (8 * j + 2 * (lane & 3) + (i & 1) >= visible) s[j][i] = -INFINITY;
}

// What P is relative to, from now on; acc and l are rescaled to it.
__device__ __forceinline__ void raise_maximum(Softmax& x, const float (&s)[4][4]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float top = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
    for (int j = 1; j < 4; j++) top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(fmaf(fmaxf(top, __shfl_xor_sync(~0u, top, 2)), x.scale[h], HEADROOM), x.m[h]);
    const float alpha = exp2_approx(x.m[h] - top);
    x.m[h] = top;
#pragma unroll
    for (int b = 0; b < 2; b++) {
      x.l[2 * h + b] *= alpha;
#pragma unroll
      for (int t = 0; t < 16; t++) x.acc[t][2 * h + b] *= alpha;
    }
  }
}

// The A operands of two steps of 16 tokens.
__device__ __forceinline__ void weights(uint32_t (&p)[2][4], const Softmax& x, const float (&s)[4][4]) {
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int h = 0; h < 2; h++)
      p[j >> 1][(j & 1) * 2 + h] =
          pack_f16(exp2_approx(fmaf(s[j][2 * h], x.scale[h], -x.m[h])), exp2_approx(fmaf(s[j][2 * h + 1], x.scale[h], -x.m[h])));
}

// P; what it is relative to is raised if it has to be, as before the first tile, when it is -inf and P is infinite or NaN.
__device__ __forceinline__ void tile_softmax(uint32_t (&p)[2][4], Softmax& x, const float (&s)[4][4]) {
  weights(p, x, s);
  const uint32_t any = p[0][0] | p[0][1] | p[0][2] | p[0][3] | p[1][0] | p[1][1] | p[1][2] | p[1][3];
  if (__any_sync(~0u, any & F16_AT_LEAST_2)) {
    raise_maximum(x, s);
    weights(p, x, s);
  }
}

// acc += P V, l += P 1. A transposed ldmatrix unit is four dims of one token, so a register holds these of two tokens.
__device__ __forceinline__ void tile_output(Softmax& x, const uint32_t (&p)[2][4], uint32_t stage, const Places& at) {
#pragma unroll
  for (int step = 0; step < 2; step++) {
    uint32_t v[2][4], scale[2][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      ldmatrix4_trans(v[h], stage + at.v_codes + (2 * step + h) * 8 * UNIT);
      ld_shared(scale[h], (h ? at.operand ^ 32 : at.operand) + step * 64);
    }
    mma_f16(x.l, p[step], F16_ONES, F16_ONES);
#pragma unroll
    for (int u = 0; u < 4; u++) {
      uint32_t f[2][4];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        unpack_codes(f[h], v[h][u]);
#pragma unroll
        for (int i = 0; i < 4; i++) f[h][i] = mul_f16x2(f[h][i], scale[h][u]);
      }
#pragma unroll
      for (int i = 0; i < 4; i++) mma_f16(x.acc[4 * u + i], p[step], f[0][i], f[1][i]);
    }
  }
}

// A tile of which the first `visible` tokens, at least one, count.
template <bool LINEAR, class Q>
__device__ __forceinline__ void attend_tile(Softmax& x, const Q& q, uint32_t stage, const Places& at, int visible, int lane) {
  widen_v_scales<LINEAR>(at.widened, stage + at.v_scales, visible, lane);
  __syncwarp();
  float s[4][4];
  uint32_t p[2][4];
  tile_scores<4>(s, q, stage, at);
  if (visible < TILE) hide_tokens(s, visible, lane);
  tile_softmax(p, x, s);
  tile_output(x, p, stage, at);
}
