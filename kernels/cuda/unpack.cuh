// mxfp4 rows (packed E2M1, one E8M0 scale per 32 dims) to an e5m2 tile with the block scales folded in.
//
// A chunk is 16 packed bytes: 32 dims and one scale.
#pragma once
#include "attend.cuh"

constexpr int ROW_BYTES4 = D_QK / 2;

__device__ __forceinline__ uint32_t or_and(uint32_t a, uint32_t b, uint32_t mask) {   // a | (b & mask) in one instruction
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xF8;" : "=r"(r) : "r"(a), "r"(b), "r"(mask));
  return r;
}
// Eight nibbles -> two registers of four e5m2 bytes, in order. t0 = {0, .5, 1, 1.5} * scale, t1 = {2, 3, 4, 6} * scale as e5m2.
__device__ __forceinline__ void nibbles_to_e5m2(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t t0, uint32_t t1) {
  const uint32_t select = x & 0x77777777u, y = x * 16;
  lo = or_and(__byte_perm(t0, t1, select), __byte_perm(y, x, 0x5140), 0x80808080u);
  hi = or_and(__byte_perm(t0, t1, select >> 16), __byte_perm(y, x, 0x7362), 0x80808080u);
}

constexpr int PACKED_ROWS = TILE * ROW_BYTES4;
constexpr int PACKED_BYTES = 20480;                      // then TILE scale rows of at most 24 bytes, from an address rounded down to 16

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
  uint32_t x[CHUNKS][4], e[CHUNKS];

  static __device__ __forceinline__ int chunk_in_box(int tid, int j) { return (tid & 1) + 2 * (j ^ ((tid >> 2) & 1)); }

  // Stage of load_packed; `skipped` as there; `rows` how many rows it holds: past them the last one is repeated, its weight will be zero.
  __device__ __forceinline__ void load(uint32_t stage, uint32_t skipped, int stride, int rows, int tid) {
    const int row = min(tid >> 1, rows - 1);
    const uint32_t kv = stage + row * ROW_BYTES4, scales = stage + PACKED_ROWS + skipped + row * stride;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
      const int chunk = i == CHUNKS - 1 ? 16 + (tid & 1) : chunk_in_box(tid, i & 1) + (i >> 1) * 4;
      asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3]) : "r"(kv + chunk * 16));
      asm volatile("ld.shared.u8 %0, [%1];" : "=r"(e[i]) : "r"(scales + chunk));
    }
  }

  __device__ __forceinline__ void unpack(uint32_t tile, int tid) const {
    const int row = tid >> 1;
    // Of chunk i, its first or second 16 unpacked bytes (k): at[i % 2][k] + i / 2 boxes, the rope's at rope[k].
    uint32_t at[2][2], rope[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
#pragma unroll
      for (int j = 0; j < 2; j++) at[j][k] = tile + row * 128 + (((chunk_in_box(tid, j) * 2 + k) ^ (row & 7)) << 4);
      rope[k] = tile + 4 * BOX + row * 64 + ((((tid & 1) * 2 + k) ^ ((row >> 1) & 3)) << 4);
    }
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
      const uint32_t s = min(max(e[i], 114u), 140u), t0 = s * 0x04040400u + (0x3E3C3800u - 127 * 0x04040400u);
      const uint32_t t1 = s * 0x04040404u + (0x46444240u - 127 * 0x04040404u);
#pragma unroll
      for (int k = 0; k < 2; k++) {
        uint32_t o[4];
        nibbles_to_e5m2(o[0], o[1], x[i][2 * k], t0, t1);
        nibbles_to_e5m2(o[2], o[3], x[i][2 * k + 1], t0, t1);
        const uint32_t dst = i == CHUNKS - 1 ? rope[k] : at[i & 1][k] + (i >> 1) * BOX;
        asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(dst), "r"(o[0]), "r"(o[1]), "r"(o[2]), "r"(o[3]) : "memory");
      }
    }
  }
};
