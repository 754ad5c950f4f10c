// A warp's ring of tiles in shared memory, filled by the copy engine.
#pragma once
#include "work.cuh"

// A stage: codes of K, of V, then scales of K, of V, which lie as in the page. Its size is a multiple of 1024, after which a swizzle repeats.
constexpr int STAGE_V = TILE * UNIT, STAGE_K_SCALES = 2 * STAGE_V, STAGE_V_SCALES = STAGE_K_SCALES + SCALE_ROW;
constexpr int TILE_BYTES = STAGE_V_SCALES + SCALE_ROW, STAGE_BYTES = (TILE_BYTES + 1023) / 1024 * 1024;
constexpr int CODE_ROW = 2 * UNIT;             // bytes: the copy engine takes rows of this size, of two tokens, twice as fast as single ones

// Where a 16-byte chunk of a token's codes lies after a 128-byte swizzle. Token + 8: ^ 64, + 512.
__device__ __forceinline__ uint32_t chunk_offset(int token, int chunk) {
  return (token >> 1) * CODE_ROW + ((((token & 1) << 2 | chunk) ^ (token >> 1 & 7)) << 4);
}

// The first pages come first: a launch begins with a copy less than there are stages, and the next one starts when a tile has come, into the
// stage of the tile before. When all warps ask at once nobody's last stage then keeps another's first tile waiting. APART: K and V of a tile come
// by copies and mbarriers of their own.
template <int STAGES, bool APART>
struct Ring {
  static_assert(STAGES > 1);
  static constexpr int AHEAD = STAGES - 1;   // tiles that are asked for before the first has come
  static constexpr int PARTS = APART ? 2 : 1, PLANES = 2 / PARTS, PART_BYTES = TILE_BYTES / PARTS;
  // The cache seen twice, as pages of two planes, K and V: rows of two tokens' codes, and rows of a tile's scales.
  const CUtensorMap *codes_map, *scales_map;
  uint32_t stages, bars;       // shared memory: of this warp
  int tile, k_scale_rows;      // this warp's tile in a plane; rows of scales' size before K's scales

  // `member`: the warp's number in its team
  __device__ __forceinline__ Ring(const CUtensorMap* codes_map, const CUtensorMap* scales_map, const Args& a, const Work& w, uint32_t stages,
                                  uint32_t bars, int member)
      : codes_map(codes_map), scales_map(scales_map), stages(stages), bars(bars), tile(w.kv_head * TEAM + member),
        k_scale_rows(a.kv_heads * (K_SCALES * UNIT / SCALE_ROW)) {}

  // One lane.
  __device__ __forceinline__ void init() const {
    prefetch_map(codes_map);
    prefetch_map(scales_map);
    for (int i = 0; i < STAGES * PARTS; i++) mbar_init(bars + i * 8, 1);
    mbar_init_fence();
  }
  // One lane; nobody reads the stage any more. `page` is an entry of list_pages. Part 0 is the tile or its K, 1 its V.
  __device__ __forceinline__ void load_part(int page, int stage, int part) const {
    const uint32_t dst = this->stage(stage), bar = this->bar(stage, part);
    if (page < 0) page = ~page;
    mbar_expect(bar, PART_BYTES);
    tma_4d(dst + part * STAGE_V, codes_map, 0, tile * (TILE * UNIT / CODE_ROW), part, page, bar);
    tma_4d(dst + STAGE_K_SCALES + part * SCALE_ROW, scales_map, 0, k_scale_rows + tile, part, page, bar);
  }
  __device__ __forceinline__ void load(int page, int stage) const {
#pragma unroll
    for (int part = 0; part < PARTS; part++) load_part(page, stage, part);
  }
  __device__ __forceinline__ uint32_t bar(int stage, int part) const { return bars + (stage * PARTS + part) * 8; }
  __device__ __forceinline__ uint32_t stage(int i) const { return stages + i * STAGE_BYTES; }
  static __device__ __forceinline__ int before(int stage) { return stage ? stage - 1 : STAGES - 1; }
};
