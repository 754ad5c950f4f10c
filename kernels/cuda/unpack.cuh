// mxfp4 rows (packed E2M1, one E8M0 scale per 32 dims) to e5m2 in registers, as wgmma's A operand reads them. A token's block scales are
// folded in as far as they are below its largest, the token's base; blocks more than 2^26 below it are raised to that, which no sum notices.
//
// A chunk is 16 packed bytes: 32 dims and one scale.
#pragma once
#include "attend.cuh"

constexpr int ROW_BYTES4 = D_QK / 2, CHUNK_BYTES = 16;

// Eight nibbles -> two registers of four e5m2 bytes, in order. t0 = {0, .5, 1, 1.5} * scale, t1 = {2, 3, 4, 6} * scale as e5m2.
__device__ __forceinline__ void nibbles_to_e5m2(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t t0, uint32_t t1) {
  const uint32_t select = x & 0x77777777u, y = x * 16;
  lo = or_and(pick_bytes(t0, t1, select), pick_bytes(y, x, 0x5140), 0x80808080u);
  hi = or_and(pick_bytes(t0, t1, select >> 16), pick_bytes(y, x, 0x7362), 0x80808080u);
}

constexpr int PACKED_ROWS = TILE * ROW_BYTES4;
constexpr int PACKED_BYTES = 19984;                      // then TILE scale rows of at most 24 bytes, from an address rounded down to 16
// A base puts the token's largest scale at 2^13, where 6 times it still is an e5m2. Bases stay within factors that fp32 holds as the sum of P
// grows; only tokens whose largest scale is below 2^-87 are then not rebased in full.
constexpr int LARGEST_E8M0 = 127 + 13, SMALLEST_E8M0 = 127 - 13, SMALLEST_BASE = -100;

// The packed rows and scales of a block's tiles. A tile in shared memory takes PACKED_BYTES.
struct PackedRows {
  const uint8_t *kv, *e8m0, *e8m0_end;
  uint32_t skipped;                                      // bytes before a tile's first scale: the same for all tiles
  int stride, rows_left;

  __device__ __forceinline__ PackedRows(const Args& a, const Work& w)
      : e8m0_end(a.kv_e8m0_end), stride(a.e8m0_stride), rows_left(w.len - w.tile0 * TILE) {
    const size_t row = (size_t)w.row0 + w.tile0 * TILE;
    kv = a.kv + row * ROW_BYTES4;
    e8m0 = a.kv_e8m0 + row * stride;
    skipped = (uint32_t)(uintptr_t)e8m0 & 15;
  }
  __device__ __forceinline__ int rows(int t) const { return min(TILE, rows_left - t * TILE); }
  __device__ __forceinline__ const uint8_t* scales(int t) const { return e8m0 + (int64_t)t * (TILE * stride); }
  // Scales are copied in units of 16 bytes, as far as those end with the tensor: at the end of a sequence they may not.
  __device__ __forceinline__ uint32_t bulk_bytes(int t) const {
    const uint32_t bytes = (skipped + rows(t) * stride + 15) & ~15u;
    if ((t + 1) * TILE < rows_left) return bytes;
    const size_t there = e8m0_end - (scales(t) - skipped);
    return bytes <= there ? bytes : (uint32_t)there & ~15u;
  }
  __device__ __forceinline__ void expect(int t, uint32_t bar) const { mbar_expect(bar, rows(t) * ROW_BYTES4 + bulk_bytes(t)); }
  // Comes before `expect`, whose arrival the last few scales are seen after.
  __device__ __forceinline__ void copy(int t, uint32_t stage, uint32_t bar) const {
    const uint32_t bytes = bulk_bytes(t);
    bulk_load(stage, kv + (int64_t)t * PACKED_ROWS, rows(t) * ROW_BYTES4, bar);
    bulk_load(stage + PACKED_ROWS, scales(t) - skipped, bytes, bar);
#pragma unroll 1
    for (uint32_t i = bytes; i < skipped + rows(t) * stride; i++) st_shared_u8(stage + PACKED_ROWS + i, __ldg(scales(t) - skipped + i));
  }
};

// Which token of its warp's 16 an operand row is: two low bits change places, so that the eight lanes that share an access to shared memory
// read rows of packed bytes in different banks.
__device__ __forceinline__ int token_of_row(int row) { return (row & 12) | (row & 1) << 1 | (row & 2) >> 1; }

// What a lane has of one token: of four lanes, lane q takes chunk q of every four and a quarter of each of the two rope chunks.
struct TokenQuarter {
  uint32_t packed;                                       // address of its first bytes
  uint32_t e[6];                                         // E8M0 over the base: of its chunks, of the rope chunks
  int base;

  // Token `token` of tile t, or its last one.
  __device__ __forceinline__ TokenQuarter(uint32_t stage, const PackedRows& rows, int t, int token, int q) {
    const int stored = min(token, rows.rows(t) - 1);
    packed = stage + stored * ROW_BYTES4 + q * CHUNK_BYTES;
    const uint32_t scales = stage + PACKED_ROWS + rows.skipped + stored * rows.stride;
#pragma unroll
    for (int i = 0; i < 6; i++) e[i] = ld_shared_u8(scales + (i < 4 ? 4 * i + q : 12 + i));
    uint32_t largest = max(e[4], e[5]);
#pragma unroll
    for (int i = 0; i < 4; i++) largest = max(largest, e[i]);
    largest = max(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = max(largest, __shfl_xor_sync(~0u, largest, 2));
    base = max((int)largest - LARGEST_E8M0, SMALLEST_BASE);
#pragma unroll
    for (int i = 0; i < 6; i++) e[i] = (uint32_t)max((int)e[i] - base, SMALLEST_E8M0);
  }

  // Chunk q of chunks 4 group .. 4 group + 3; a rope chunk's quarter.
  __device__ __forceinline__ void load(uint32_t (&x)[4], int group) const { ld_shared(x, packed + group * 4 * CHUNK_BYTES); }
  __device__ __forceinline__ uint32_t load_rope(int chunk, int q) const {
    return ld_shared_u32(packed + (16 + chunk) * CHUNK_BYTES - q * (CHUNK_BYTES - 4));
  }

  __device__ __forceinline__ void unpack(uint32_t& lo, uint32_t& hi, uint32_t x, int scale) const {
    nibbles_to_e5m2(lo, hi, x, e[scale] * 0x04040400u + (0x3E3C3800u - 127 * 0x04040400u), e[scale] * 0x04040404u + (0x46444240u - 127 * 0x04040404u));
  }
};
