// Queries as the tensor cores read them.
#pragma once
#include "unpack.cuh"

// The A operands of the scores. Lane (g, c) = (lane / 4, lane % 4): rows g and g + 8, dims 32 c to 32 c + 31, of which step 2 w + s takes
// 32 c + 8 w + {2 s, 2 s + 4} as its k of 2 c, 2 c + 1 and {2 s + 1, 2 s + 5} as 2 c + 8, 2 c + 9: the pairs of unpack_codes.
// They lie in shared memory, 16 bytes of each lane for each step: registers are what limits the warps of a multiprocessor.
constexpr int QUERY_BYTES = 8 * 32 * 16;
struct Query {
  uint4 x[2][4];               // rows as they are, until they are stored
  uint32_t operands;           // shared memory: of this lane
  float power[2];              // each row is divided by a power of two, exactly, so that it fits f16

  // Starts the loads.
  __device__ __forceinline__ Query(const Args& a, const Work& w, uint32_t stored, int lane) : operands(stored + lane * 16) {
    const int head = lane >> 2;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const uint4* src = reinterpret_cast<const uint4*>(a.q + ((size_t)w.pair * a.group + head + 8 * h) * HEAD_DIM + (lane & 3) * 32);
        x[h][k] = head + 8 * h < a.group ? __ldg(src + k) : make_uint4(0, 0, 0, 0);
      }
  }
  // Each warp of a team stores the operands of two steps; a barrier before they are read.
  __device__ __forceinline__ void store(int member) {
    uint32_t operand[2][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint32_t exponent = row_exponent(x[h]);
      power[h] = __uint_as_float(exponent << 23);
      const float inverse = __uint_as_float((254 - exponent) << 23);
      const uint4 mine = member < 2 ? (member ? x[h][1] : x[h][0]) : (member & 1 ? x[h][3] : x[h][2]);
      const uint32_t words[4] = {mine.x, mine.y, mine.z, mine.w};
#pragma unroll
      for (int i = 0; i < 4; i++) operand[i >> 1][(i & 1) * 2 + h] = pair(words[i >> 1], words[(i >> 1) + 2], i & 1, inverse);
    }
#pragma unroll
    for (int s = 0; s < 2; s++) st_shared(operands + (2 * member + s) * 512, operand[s]);
  }
  // The exponent field of the largest element of a row, of which four lanes hold a part, within what has an inverse.
  static __device__ __forceinline__ uint32_t row_exponent(const uint4 (&x)[4]) {
    uint32_t top = 0;
#pragma unroll
    for (int k = 0; k < 4; k++)
      top = __vmaxu2(top, __vmaxu2(__vmaxu2(x[k].x & 0x7fff7fff, x[k].y & 0x7fff7fff), __vmaxu2(x[k].z & 0x7fff7fff, x[k].w & 0x7fff7fff)));
    top = max(top & 0xffff, top >> 16);
    top = max(top, __shfl_xor_sync(~0u, top, 1));
    top = max(top, __shfl_xor_sync(~0u, top, 2));
    return min(max(top >> 7, 1u), 253u);
  }
  static __device__ __forceinline__ uint32_t pair(uint32_t first, uint32_t second, int odd, float factor) {
    const float lo = __uint_as_float(odd ? first & 0xffff0000u : first << 16), hi = __uint_as_float(odd ? second & 0xffff0000u : second << 16);
    return pack_f16(lo * factor, hi * factor);
  }
};

// What the loop multiplies by, after the barrier: from shared memory each time or, where registers are left, HELD in them.
template <bool HELD>
struct Operands {
  uint32_t stored, held[HELD ? 8 : 1][4];
  __device__ __forceinline__ explicit Operands(const Query& q) : stored(q.operands) {
    if constexpr (HELD) {
#pragma unroll
      for (int step = 0; step < 8; step++) ld_shared(held[step], stored + step * 512);
    }
  }
  __device__ __forceinline__ void load(uint32_t (&operand)[4], int step) const {
    if constexpr (HELD) {
#pragma unroll
      for (int i = 0; i < 4; i++) operand[i] = held[step][i];
    } else {
      ld_shared(operand, stored + step * 512);
    }
  }
};
