// A warp's ring of tiles in shared memory, filled by the copy engine.
#pragma once
#include "work.cuh"

// A stage: codes of K, of V, then scales of K, of V, which lie as in the page. Its size is a multiple of 512, after which a swizzle repeats.
constexpr int STAGE_V = TILE * UNIT, STAGE_K_SCALES = 2 * STAGE_V, STAGE_V_SCALES = STAGE_K_SCALES + SCALE_ROW;
constexpr int STAGE_BYTES = STAGE_V_SCALES + SCALE_ROW;

// Where a 16-byte chunk of a token's codes lies after a 64-byte swizzle.
__device__ __forceinline__ uint32_t chunk_offset(int token, int chunk) { return token * UNIT + ((chunk ^ (token >> 1 & 3)) << 4); }

// The first pages come first: a launch begins with a copy less than there are stages, and the next one starts when a tile has come, into the
// stage of the tile before. When all warps ask at once nobody's last stage then keeps another's first tile waiting.
template <int STAGES>
struct Ring {
  static_assert(STAGES > 1);
  static constexpr int AHEAD = STAGES - 1;   // tiles that are asked for before the first has come
  // The cache seen twice, as pages of two planes, K and V: rows of a token's codes, and rows of a tile's scales.
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
    for (int i = 0; i < STAGES; i++) mbar_init(bars + i * 8, 1);
    mbar_init_fence();
  }
  // One lane; nobody reads the stage any more. `page` is an entry of list_pages.
  __device__ __forceinline__ void load(int page, int stage) const {
    const uint32_t dst = this->stage(stage), bar = bars + stage * 8;
    if (page < 0) page = ~page;
    mbar_expect(bar, STAGE_BYTES);
    tma_4d(dst, codes_map, 0, tile * TILE, 0, page, bar);
    tma_4d(dst + STAGE_K_SCALES, scales_map, 0, k_scale_rows + tile, 0, page, bar);
  }
  __device__ __forceinline__ uint32_t stage(int i) const { return stages + i * STAGE_BYTES; }
  static __device__ __forceinline__ int before(int stage) { return stage ? stage - 1 : STAGES - 1; }
};
