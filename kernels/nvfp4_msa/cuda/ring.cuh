// A warp's ring of tiles in shared memory, filled by the copy engine.
#pragma once
#include "work.cuh"

// A stage: codes of 32 tokens of K, of V (64 bytes a token, 16-byte chunks swizzled), scales of K, of V (8 bytes a token, as they lie in
// the page).
constexpr int STAGE_V = TILE * 64, STAGE_K_SCALES = 2 * STAGE_V, STAGE_V_SCALES = STAGE_K_SCALES + TILE * 8;
constexpr int STAGE_BYTES = STAGE_V_SCALES + TILE * 8;

// Where a 16-byte chunk of a token's codes lies: what a 64-byte swizzle does to rows of 64 bytes from an address that is a multiple of 512.
__device__ __forceinline__ uint32_t chunk_offset(int token, int chunk) { return token * 64 + ((chunk ^ (token >> 1 & 3)) << 4); }

template <int STAGES>
struct Ring {
  // The cache seen twice, as K and V that are V_DATA units for each KV head apart: rows of a token's codes, and rows of a tile's scales.
  const CUtensorMap *codes_map, *scales_map;
  uint32_t stages, bars;       // shared memory: of this warp
  int page_codes, page_scales; // rows from a page to the next
  int codes, scales;           // rows of this warp's tile in page 0; `member`: its number in its team

  __device__ __forceinline__ Ring(const CUtensorMap* codes_map, const CUtensorMap* scales_map, const Args& a, const Work& w, uint32_t stages,
                                  uint32_t bars, int member)
      : codes_map(codes_map), scales_map(scales_map), stages(stages), bars(bars), page_codes(a.kv_heads * HEAD_UNITS),
        page_scales(a.kv_heads * (HEAD_UNITS * UNIT / SCALE_ROW)), codes(w.kv_head * PAGE + member * TILE),
        scales(a.kv_heads * (K_SCALES * UNIT / SCALE_ROW) + w.kv_head * TEAM + member) {}

  // One lane.
  __device__ __forceinline__ void init() const {
    prefetch_map(codes_map);
    prefetch_map(scales_map);
    for (int i = 0; i < STAGES; i++) mbar_init(bars + i * 8, 1);
    mbar_init_fence();
  }
  // One lane; nobody reads the stage any more. `page` is an entry of list_pages.
  __device__ __forceinline__ void load(int page, int stage) const {
    const uint32_t dst = this->stage(stage), bar = bars + stage * 8;
    if (page < 0) page = ~page;
    mbar_expect(bar, STAGE_BYTES);
    tma_3d(dst, codes_map, 0, page * page_codes + codes, 0, bar);
    tma_3d(dst + STAGE_K_SCALES, scales_map, 0, page * page_scales + scales, 0, bar);
  }
  __device__ __forceinline__ uint32_t stage(int i) const { return stages + i * STAGE_BYTES; }
};
