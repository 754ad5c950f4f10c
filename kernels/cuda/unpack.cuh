// mxfp4 rows (packed E2M1, one E8M0 scale per 32 dims) to an e5m2 tile. A token's block scales are folded in as far as they are below its
// largest, the token's base; blocks more than 2^26 below it are raised to that, which no sum notices.
//
// A chunk is 16 packed bytes: 32 dims and one scale.
#pragma once
#include "attend.cuh"

constexpr int ROW_BYTES4 = D_QK / 2;

// Eight nibbles -> two registers of four e5m2 bytes, in order. t0 = {0, .5, 1, 1.5} * scale, t1 = {2, 3, 4, 6} * scale as e5m2.
__device__ __forceinline__ void nibbles_to_e5m2(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t t0, uint32_t t1) {
  const uint32_t select = x & 0x77777777u, y = x * 16;
  lo = or_and(__byte_perm(t0, t1, select), __byte_perm(y, x, 0x5140), 0x80808080u);
  hi = or_and(__byte_perm(t0, t1, select >> 16), __byte_perm(y, x, 0x7362), 0x80808080u);
}

constexpr int PACKED_ROWS = TILE * ROW_BYTES4;
constexpr int PACKED_BYTES = 19984;                      // then TILE scale rows of at most 24 bytes, from an address rounded down to 16
// A base puts the token's largest scale at 2^13, where 6 times it still is an e5m2. Bases stay within factors that fp32 holds as the sum of P
// grows; only tokens whose largest scale is below 2^-87 are then not rebased in full.
constexpr int LARGEST_E8M0 = 127 + 13, SMALLEST_E8M0 = 127 - 13, SMALLEST_BASE = -100;

// Starts the copies of `rows` packed rows and their scales to a stage of PACKED_BYTES.
__device__ __forceinline__ void load_packed(uint32_t stage, const uint8_t* kv, const uint8_t* e8m0, int stride, int rows, uint32_t bar) {
  const uint32_t skipped = (uint32_t)(uintptr_t)e8m0 & 15, scale_bytes = (skipped + rows * stride + 15) & ~15u;
  mbar_expect(bar, rows * ROW_BYTES4 + scale_bytes);
  bulk_load(stage, kv, rows * ROW_BYTES4, bar);
  bulk_load(stage + PACKED_ROWS, e8m0 - skipped, scale_bytes, bar);
}

// The half row of one thread: 128 threads unpack a tile, two to a row, which take alternate chunks. Which of its two chunks of a box a
// thread takes first depends on the row, so that eight neighbouring lanes load from and store to different banks.
struct HalfRow {
  static constexpr int CHUNKS = 9;                       // 2 b + j: of box b; 8: of the rope dims
  uint32_t packed;                                       // address of the row
  int row, half, base;
  uint32_t e[CHUNKS];                                    // E8M0 of each chunk, over the base

  __device__ __forceinline__ int chunk_in_box(int j) const { return half + 2 * (j ^ ((row >> 1) & 1)); }
  __device__ __forceinline__ int chunk(int i) const { return i == CHUNKS - 1 ? 16 + half : chunk_in_box(i & 1) + (i >> 1) * 4; }

  // Stage of load_packed; `skipped` as there; `rows` how many rows it holds: past them the last one is repeated, its weight will be zero.
  __device__ __forceinline__ HalfRow(uint32_t stage, uint32_t skipped, int stride, int rows, int tid) : row(tid >> 1), half(tid & 1) {
    const int stored = min(row, rows - 1);
    packed = stage + stored * ROW_BYTES4;
    const uint32_t scales = stage + PACKED_ROWS + skipped + stored * stride;
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
      e[i] = ld_shared_u8(scales + chunk(i));
      largest = max(largest, e[i]);
    }
    largest = max(largest, __shfl_xor_sync(~0u, largest, 1));
    base = max((int)largest - LARGEST_E8M0, SMALLEST_BASE);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) e[i] = (uint32_t)max((int)e[i] - base, SMALLEST_E8M0);
  }

  template <int FIRST, int COUNT>
  __device__ __forceinline__ void load(uint32_t (&x)[COUNT][4]) const {
#pragma unroll
    for (int i = 0; i < COUNT; i++) ld_shared(x[i], packed + chunk(FIRST + i) * 16);
  }

  template <int FIRST, int COUNT>
  __device__ __forceinline__ void unpack(uint32_t tile, const uint32_t (&x)[COUNT][4]) const {
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
      const int i = FIRST + n;
      const uint32_t t0 = e[i] * 0x04040400u + (0x3E3C3800u - 127 * 0x04040400u), t1 = e[i] * 0x04040404u + (0x46444240u - 127 * 0x04040404u);
#pragma unroll
      for (int k = 0; k < 2; k++) {
        uint32_t o[4];
        nibbles_to_e5m2(o[0], o[1], x[n][2 * k], t0, t1);
        nibbles_to_e5m2(o[2], o[3], x[n][2 * k + 1], t0, t1);
        const uint32_t dst = i == CHUNKS - 1 ? tile + 4 * BOX + row * 64 + (((half * 2 + k) ^ ((row >> 1) & 3)) << 4)
                                             : tile + (i >> 1) * BOX + row * 128 + (((chunk_in_box(i & 1) * 2 + k) ^ (row & 7)) << 4);
        st_shared(dst, o);
      }
    }
  }
};
