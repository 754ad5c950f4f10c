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
  const CUtensorMap* map;      // the cache as [units, 64] bytes; a box is a tile's codes
  const uint8_t* cache;
  uint32_t stages, bars;       // shared memory: of this warp
  int page_units, first_unit, kv_heads, first_scale;

  __device__ __forceinline__ Ring(const CUtensorMap* map, const Args& a, const Work& w, uint32_t stages, uint32_t bars, int warp)
      : map(map), cache(a.cache), stages(stages), bars(bars), page_units(a.kv_heads * HEAD_UNITS), first_unit(w.kv_head * PAGE + warp * TILE),
        kv_heads(a.kv_heads), first_scale((w.kv_head * PAGE + warp * TILE) * 8) {}

  // One lane.
  __device__ __forceinline__ void init() const {
    for (int i = 0; i < STAGES; i++) mbar_init(bars + i * 8, 1);
    mbar_init_fence();
  }
  // One lane; nobody reads the stage any more.
  __device__ __forceinline__ void load(int page, int stage) const {
    const uint32_t dst = stages + stage * STAGE_BYTES, bar = bars + stage * 8;
    const int unit = page * page_units;
    const uint8_t* scales = cache + (size_t)unit * UNIT + first_scale;
    mbar_expect(bar, STAGE_BYTES);
    tma_2d(dst, map, 0, unit + first_unit, bar);
    bulk_load(dst + STAGE_K_SCALES, scales + kv_heads * (K_SCALES * UNIT), TILE * 8, bar);
    tma_2d(dst + STAGE_V, map, 0, unit + kv_heads * V_DATA + first_unit, bar);
    bulk_load(dst + STAGE_V_SCALES, scales + kv_heads * (V_SCALES * UNIT), TILE * 8, bar);
  }
  __device__ __forceinline__ uint32_t stage(int i) const { return stages + i * STAGE_BYTES; }
};
