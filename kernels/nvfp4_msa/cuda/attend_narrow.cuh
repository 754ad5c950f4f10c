// Products for up to eight query heads: tokens or dims are their rows, heads their columns, so that none of the 16 rows is padding. That is
// half of the products, accumulators and exponentials of attend_wide.cuh, for four transpositions of weights.
#pragma once
#include "softmax.cuh"

// Lane (g, c) = (lane / 4, lane % 4): heads 2 c and 2 c + 1.
struct Narrow {
  static constexpr int ROWS = 8, TILES = 2, FIRST_PEER = 4, END_PEER = 32;
  static __device__ __forceinline__ constexpr int row_of(int element) { return element & 1; }
  static __device__ __forceinline__ int row(int lane, int h) { return 2 * (lane & 3) + h; }

  // s[j][2 h + b]: token 16 j + 8 h + g, head 2 c + b.
  template <class Q>
  static __device__ __forceinline__ void scores(float (&s)[2][4], const Q& q, const Keys& keys) {
#pragma unroll
    for (int w = 0; w < 4; w++) {
      uint32_t first[2], second[2];
      q.load(first, 2 * w);
      q.load(second, 2 * w + 1);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        uint32_t k[2][4];
        keys.unpack(k[0], 2 * j, w);
        keys.unpack(k[1], 2 * j + 1, w);
        mma_f16(s[j], {k[0][0], k[1][0], k[0][1], k[1][1]}, first[0], first[1]);
        mma_f16(s[j], {k[0][2], k[1][2], k[0][3], k[1][3]}, second[0], second[1]);
      }
    }
  }
  static __device__ __forceinline__ int token(int tile, int element, int lane) { return 16 * tile + 8 * (element >> 1) + (lane >> 2); }

  // acc += V P, l += 1 P, of 16 tokens. acc[2 u + k] is the tile whose row g + 8 e is dim 32 u + 4 g + 2 k + e; its element 2 e + b is head
  // 2 c + b. A lane has P of one token for two heads, and as an operand of two tokens for one head: it is transposed.
  static __device__ __forceinline__ void output(Softmax<Narrow>& x, const uint32_t (&p)[2], const Values& values) {
    const uint32_t first = transpose_8x8(p[0]), second = transpose_8x8(p[1]);
    mma_f16(x.l, {F16_ONES, F16_ONES, F16_ONES, F16_ONES}, first, second);
#pragma unroll
    for (int u = 0; u < 4; u++) {
      uint32_t v[2][4];
      values.unpack(v, u);
#pragma unroll
      for (int k = 0; k < 2; k++) mma_f16(x.acc[2 * u + k], {v[0][2 * k], v[0][2 * k + 1], v[1][2 * k], v[1][2 * k + 1]}, first, second);
    }
  }

  // acc times `factor` in f16 to rows of SHARE_PITCH bytes.
  static __device__ __forceinline__ void store(uint8_t* rows, const Softmax<Narrow>& x, const float (&factor)[2], int lane) {
#pragma unroll
    for (int b = 0; b < 2; b++) {
      uint2* to = reinterpret_cast<uint2*>(rows + row(lane, b) * SHARE_PITCH);
      const float f = factor[b];
#pragma unroll
      for (int u = 0; u < 4; u++) {                // dims 32 u + 4 g to + 3
        const float(&low)[4] = x.acc[2 * u], (&high)[4] = x.acc[2 * u + 1];
        to[8 * u + (lane >> 2)] = make_uint2(pack_f16(low[b] * f, low[2 + b] * f), pack_f16(high[b] * f, high[2 + b] * f));
      }
    }
  }
};
