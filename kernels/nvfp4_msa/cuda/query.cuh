// Queries as the tensor cores read them.
#pragma once
#include "unpack.cuh"

// The operands of the scores in shared memory: f16 [8 steps][32 lanes][ROWS / 2]. Lane (g, c) = (lane / 4, lane % 4) has rows g and, of 16,
// g + 8, and dims 32 c to 32 c + 31, of which step 2 w + s takes 32 c + 8 w + {2 s, 2 s + 4} as its k of 2 c, 2 c + 1 and
// {2 s + 1, 2 s + 5} as 2 c + 8, 2 c + 9: the pairs of unpack_codes. Behind them, for each row, the power of two that it was divided by.
template <int ROWS>
struct QueryLayout {
  static constexpr int STEP = 32 * ROWS, POWERS = 8 * STEP, BYTES = POWERS + ROWS * 4;
};

// What a thread of a block loads: octets of rows, neighbouring threads neighbouring ones.
template <int ROWS, int THREADS>
struct Query {
  using Layout = QueryLayout<ROWS>;
  static constexpr int OCTETS = (ROWS * ROW_OCTETS + THREADS - 1) / THREADS;
  uint4 x[OCTETS];
  int first, octet;            // row of the first

  // Starts the loads.
  __device__ __forceinline__ Query(const Args& a, const Work& w, int tid) : first(tid / ROW_OCTETS), octet(tid % ROW_OCTETS) {
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
      const uint4* src = reinterpret_cast<const uint4*>(a.q + (size_t)w.pair * a.group * HEAD_DIM) + row(k) * ROW_OCTETS + octet;
      x[k] = row(k) < a.group ? __ldg(src) : make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ int row(int k) const { return first + k * (THREADS / ROW_OCTETS); }
  // A barrier before anyone reads. Each row is divided by a power of two, exactly, so that it fits f16.
  __device__ __forceinline__ void store(uint32_t query) const {
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
      if (THREADS > ROWS * ROW_OCTETS && row(k) >= ROWS) return;   // whole warps are left over
      const uint32_t exponent = row_exponent(x[k]);
      const float inverse = __uint_as_float((254 - exponent) << 23);
      if (octet == 0) st_shared(query + Layout::POWERS + row(k) * 4, exponent << 23);
      const uint32_t words[4] = {x[k].x, x[k].y, x[k].z, x[k].w}, lane = (row(k) & 7) * 4 + (octet >> 2);
      const uint32_t to = query + (octet & 3) * 2 * Layout::STEP + lane * ROWS + (row(k) >> 3) * 4;
#pragma unroll
      for (int i = 0; i < 4; i++)
        st_shared(to + (i >> 1) * Layout::STEP + (i & 1) * (ROWS / 2), pair(words[i >> 1], words[(i >> 1) + 2], i & 1, inverse));
    }
  }
  // The exponent field of the largest element of a row, of which 16 lanes hold an octet, within what has an inverse.
  static __device__ __forceinline__ uint32_t row_exponent(uint4 x) {
    uint32_t top = __vmaxu2(__vmaxu2(x.x & 0x7fff7fff, x.y & 0x7fff7fff), __vmaxu2(x.z & 0x7fff7fff, x.w & 0x7fff7fff));
    top = max(top & 0xffff, top >> 16);
#pragma unroll
    for (int bits = 1; bits < ROW_OCTETS; bits *= 2) top = max(top, __shfl_xor_sync(~0u, top, bits));
    return min(max(top >> 7, 1u), 253u);
  }
  static __device__ __forceinline__ uint32_t pair(uint32_t first, uint32_t second, int odd, float factor) {
    const float lo = __uint_as_float(odd ? first & 0xffff0000u : first << 16), hi = __uint_as_float(odd ? second & 0xffff0000u : second << 16);
    return pack_f16(lo * factor, hi * factor);
  }
};

// What the loop multiplies by, after the barrier: from shared memory each time or, where registers are left, HELD in them.
template <int ROWS, bool HELD>
struct Operands {
  using Layout = QueryLayout<ROWS>;
  static constexpr int WORDS = ROWS / 4;
  uint32_t query, stored, held[HELD ? 8 : 1][WORDS];
  __device__ __forceinline__ Operands(uint32_t query, int lane) : query(query), stored(query + lane * ROWS) {
    if constexpr (HELD) {
#pragma unroll
      for (int step = 0; step < 8; step++) ld_shared(held[step], stored + step * Layout::STEP);
    }
  }
  __device__ __forceinline__ void load(uint32_t (&operand)[WORDS], int step) const {
    if constexpr (HELD) {
#pragma unroll
      for (int i = 0; i < WORDS; i++) operand[i] = held[step][i];
    } else {
      ld_shared(operand, stored + step * Layout::STEP);
    }
  }
  __device__ __forceinline__ float power(int row) const { return __uint_as_float(ld_shared_u32(query + Layout::POWERS + row * 4)); }
};
