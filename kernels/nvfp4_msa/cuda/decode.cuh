// NVFP4 block-sparse decode in one launch.
#pragma once
#include "merge.cuh"

// STAGES: tiles of each warp's ring. BLOCKS: blocks per SM that registers and shared memory are sized for. LINEAR: how V scales lie.
template <int STAGES_, int BLOCKS_, bool LINEAR_>
struct Variant {
  static constexpr int STAGES = STAGES_, BLOCKS = BLOCKS_;
  static constexpr bool LINEAR = LINEAR_;
  // Offsets in shared memory, bytes. The merge overlays the rings.
  static constexpr int RING = STAGES * STAGE_BYTES, SCALES = WARPS * RING, PAGES = SCALES + WARPS * SCALES_BYTES;
  static constexpr int SUMS = PAGES + WARPS * MAX_TOPK * 4, BARRIERS = SUMS + SUMS_BYTES, SMEM = BARRIERS + WARPS * STAGES * 8;
  static_assert(MERGE_BYTES <= SCALES);
};

// The warp's share of the listed pages. `visible`: tokens of the row's own block that it sees.
template <class V>
__device__ __forceinline__ void attend(Softmax& x, const Query& q, const Ring<V::STAGES>& ring, const int* pages, int tiles, int visible,
                                       uint32_t scales, int lane) {
  const Places at = Places::of<V::LINEAR>(lane);
  int stage = 0, parity = 0;
#pragma unroll 1
  for (int i = 0; i < tiles; i++) {
    const int page = pages[i];
    mbar_wait(ring.bars + stage * 8, parity);
    const int seen = page < 0 ? visible : TILE;
    if (seen > 0) attend_tile<V::LINEAR>(x, q, ring.stage(stage), scales, at, seen, lane);
    __syncwarp();
    if (lane == 0 && i + V::STAGES < tiles) ring.load(pages[i + V::STAGES], stage);
    if (++stage == V::STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
}

template <class V>
__global__ void __launch_bounds__(THREADS, V::BLOCKS) 
nvfp4_decode(const __grid_constant__ CUtensorMap codes, const __grid_constant__ CUtensorMap scales, const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int tid = threadIdx.x, warp = __shfl_sync(~0u, tid >> 5, 0), lane = tid & 31;
  const Piece piece(tid);
  Work w(a);
  if (w.pair >= a.pairs) return;
  const uint32_t base = smem_u32(smem);
  int* pages = reinterpret_cast<int*>(smem + V::PAGES) + warp * MAX_TOPK;
  const Ring<V::STAGES> ring(&codes, &scales, a, w, base + warp * V::RING, base + V::BARRIERS + warp * V::STAGES * 8, warp);
  if (lane == 0) ring.init();
  const int count = w.list_pages(a, pages, lane);
  const Share share(count, w.split, a.splits);
  if (w.split >= share.active) return;
  float4 o[4] = {};
  if (count == 0) return store_output(a, w, piece, o);
  if (lane == 0)
    for (int i = 0; i < min(share.tiles, V::STAGES); i++) ring.load(pages[share.first + i], i);
  __syncwarp();
  const Query q(a, w, lane);
  Softmax x(q, a.sm_scale * __ldg(a.k_scale));
  attend<V>(x, q, ring, pages + share.first, share.tiles, (w.pos & 127) + 1 - warp * TILE, base + V::SCALES + warp * SCALES_BYTES, lane);

  const float lse = merge_warps(o, x, reinterpret_cast<float2*>(smem + V::SUMS), smem, piece, warp, lane);
  if (share.active > 1) {
    if (!hand_in(a, w, piece, o, lse, share.active, tid)) return;
    combine_splits(a, w, piece, share.active, o);
  }
  store_output(a, w, piece, o);
}

// Calls `f` with a null pointer to the type of a variant; false for a number that has none.
template <class F>
bool with_variant(int variant, F&& f) {
  switch (variant) {
    case 0: f((Variant<3, 3, false>*)nullptr); return true;
    case 1: f((Variant<3, 3, true>*)nullptr); return true;
    case 2: f((Variant<2, 3, false>*)nullptr); return true;
    case 3: f((Variant<2, 3, true>*)nullptr); return true;
    case 4: f((Variant<5, 2, false>*)nullptr); return true;
    case 5: f((Variant<5, 2, true>*)nullptr); return true;
  }
  return false;
}
