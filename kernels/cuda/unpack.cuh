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

// The half row of one thread: 128 threads unpack a tile, two to a row. A thread takes two of the four 32-dim chunks of each box and one of
// the rope's two, so that everything but its base address is an immediate, and eight neighbouring lanes store to different banks.
struct HalfRow {
  static constexpr int CHUNKS = 9;
  uint32_t x[CHUNKS][4], e[CHUNKS];

  // `kv` and `e8m0` are the first row of the tile, `rows` how many rows the sequence still has. Volatile: issued here, not at the use.
  __device__ __forceinline__ void load(const uint8_t* kv, const uint8_t* e8m0, int stride, int rows, int tid) {
    const int row = min(tid >> 1, rows - 1), half = tid & 1;   // past the end: repeat the last row, whose weight will be zero
    kv += row * ROW_BYTES4 + half * 32;
    e8m0 += row * stride + half * 2;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
      const int chunk = (i >> 1) * 4 + (i & 1);          // the rope's chunks are 16 and 17
      const int back = i == CHUNKS - 1 ? half : 0;
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3])
                   : "l"(kv + chunk * 16 - back * 16));
      asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(e[i]) : "l"(e8m0 + chunk - back));
    }
  }

  __device__ __forceinline__ void unpack(uint32_t tile, int tid) const {
    const int row = tid >> 1, half = tid & 1;
    // Of chunk i, its first or second 16 unpacked bytes (k): at[i % 2][k] + i / 2 boxes, the rope's at rope[k].
    const uint32_t nope = tile + row * 128 + (((half * 4) ^ (row & 7)) << 4), at[2][2] = {{nope, nope ^ 16}, {nope ^ 32, nope ^ 48}};
    const uint32_t first = tile + 4 * BOX + row * 64 + (((half * 2) ^ ((row >> 1) & 3)) << 4), rope[2] = {first, first ^ 16};
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
