// Products for up to 16 query heads: heads are their rows, tokens or dims their columns.
#pragma once
#include "softmax.cuh"

// Lane (g, c) = (lane / 4, lane % 4): rows g and g + 8.
struct Wide {
  static constexpr int ROWS = 16, TILES = 4, FIRST_PEER = 1, END_PEER = 4;
  static __device__ __forceinline__ constexpr int row_of(int element) { return element >> 1; }
  static __device__ __forceinline__ int row(int lane, int h) { return (lane >> 2) + 8 * h; }

  // s[j][2 h + b]: row g + 8 h, token 8 j + 2 c + b.
  template <class Q>
  static __device__ __forceinline__ void scores(float (&s)[4][4], const Q& q, const Keys& keys) {
#pragma unroll
    for (int w = 0; w < 4; w++) {
      uint32_t first[4], second[4];
      q.load(first, 2 * w);
      q.load(second, 2 * w + 1);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        uint32_t k[4];
        keys.unpack(k, j, w);
        mma_f16(s[j], first, k[0], k[1]);
        mma_f16(s[j], second, k[2], k[3]);
      }
    }
  }
  static __device__ __forceinline__ int token(int tile, int element, int lane) { return 8 * tile + 2 * (lane & 3) + (element & 1); }

  // acc += P V, l += P 1, of 16 tokens. acc[4 u + i] is the tile of dims 32 u + 4 n + i; its element 2 h + b is row g + 8 h, dim
  // 32 u + 8 c + 4 b + i.
  static __device__ __forceinline__ void output(Softmax<Wide>& x, const uint32_t (&p)[4], const Values& values) {
    mma_f16(x.l, p, F16_ONES, F16_ONES);
#pragma unroll
    for (int u = 0; u < 4; u++) {
      uint32_t v[2][4];
      values.unpack(v, u);
#pragma unroll
      for (int i = 0; i < 4; i++) mma_f16(x.acc[4 * u + i], p, v[0][i], v[1][i]);
    }
  }

  // acc times `factor` in f16 to rows of SHARE_PITCH bytes.
  static __device__ __forceinline__ void store(uint8_t* rows, const Softmax<Wide>& x, const float (&factor)[2], int lane) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      uint4* to = reinterpret_cast<uint4*>(rows + row(lane, h) * SHARE_PITCH);
#pragma unroll
      for (int u = 0; u < 4; u++) {
        uint32_t y[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int t = 4 * u + (i & 1) * 2, element = 2 * h + (i >> 1);   // dims 32 u + 8 c + 2 i and + 1
          y[i] = pack_f16(x.acc[t][element] * factor[h], x.acc[t + 1][element] * factor[h]);
        }
        to[u * 4 + (lane & 3)] = make_uint4(y[0], y[1], y[2], y[3]);
      }
    }
  }
};
