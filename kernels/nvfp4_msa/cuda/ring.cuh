// A warp's ring of tiles in shared memory, filled by the copy engine.
#pragma once
#include "work.cuh"

// A stage: 4,096 bytes of codes, of K and of V, and 512 of scales, of K and of V, which lie as in the page. Codes begin at multiples of 1024.
constexpr int CODES = TILE_UNITS * UNIT, CODES_BYTES = 2 * CODES, SCALES_BYTES = 2 * SCALE_ROW;

// Where a 16-byte chunk of a token's codes lies after a 128-byte swizzle. Eight tokens on: + 512, ^ 64.
__device__ __forceinline__ uint32_t chunk_offset(int token, int chunk) {
  const int row = token >> 1;
  return row * UNIT + ((((token & 1) << 2 | chunk) ^ (row & 7)) << 4);
}

template <int STAGES>
struct Ring {
  // The cache seen twice, as pages of two planes, K and V: rows of two tokens' codes, and rows of a tile's scales.
  const CUtensorMap *codes_map, *scales_map;
  uint32_t codes, scales, bars; // shared memory: of this warp
  int codes_row, scales_row;   // of this warp's tile in a plane; `member`: its number in its team

  __device__ __forceinline__ Ring(const CUtensorMap* codes_map, const CUtensorMap* scales_map, const Args& a, const Work& w, uint32_t codes,
                                  uint32_t scales, uint32_t bars, int member)
      : codes_map(codes_map), scales_map(scales_map), codes(codes), scales(scales), bars(bars),
        codes_row((w.kv_head * TEAM + member) * TILE_UNITS),
        scales_row(a.kv_heads * (K_SCALES * UNIT / SCALE_ROW) + w.kv_head * TEAM + member) {}

  // One lane.
  __device__ __forceinline__ void init() const {
    prefetch_map(codes_map);
    prefetch_map(scales_map);
    for (int i = 0; i < STAGES; i++) mbar_init(bars + i * 8, 1);
    mbar_init_fence();
  }
  // One lane; nobody reads the stage any more. `page` is an entry of list_pages.
  __device__ __forceinline__ void load(int page, int stage) const {
    const uint32_t bar = bars + stage * 8;
    if (page < 0) page = ~page;
    mbar_expect(bar, CODES_BYTES + SCALES_BYTES);
    tma_4d(codes + stage * CODES_BYTES, codes_map, 0, codes_row, 0, page, bar);
    tma_4d(scales + stage * SCALES_BYTES, scales_map, 0, scales_row, 0, page, bar);
  }
};
