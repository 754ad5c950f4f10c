// MLA decode over an fp8 (e4m3) or bf16 KV cache: the copy engine's tile is the tensor cores' operand.
#pragma once
#include "block.cuh"

// BLOCKS: blocks per SM that the registers and the shared memory are sized for. PAGED: rows are found through the block table.
template <Kv KV, int NWG, int STAGES, int BLOCKS_, bool PAGED_>
struct Direct : Block<KV, NWG, NWG, STAGES, TILE_BYTES<KV>, 2 * NWG, NWG * 128 + 32> {
  static constexpr int BLOCKS = BLOCKS_, SUMS_FULL = Direct::END, SMEM = SUMS_FULL + 8;
  static constexpr bool PAGED = PAGED_;
};

// The copies of one tile: boxes of 128 bytes of each token, and for fp8 one of 64 bytes, which has a tensor map of its own. With paging
// a box is as many tokens as a page, or a tile if that is smaller.
template <class L>
struct Producer {
  static constexpr int WIDE_BOXES = L::KV == Kv::bf16 ? 9 : 4, ROW_BYTES = L::BYTES / TILE;
  const Args& a;
  Work& w;
  const CUtensorMap *wide_map, *rope_map;
  uint8_t* smem;
  uint32_t tile0 = smem_u32(smem);

  __device__ __forceinline__ void copy(uint32_t tile, int first, int row, uint32_t bar) const {   // a box, from token `first` of the tile
#pragma unroll
    for (int c = 0; c < WIDE_BOXES; c++) tma_2d(tile + c * BOX + first * 128, wide_map, c * 128, row, bar);
    if (WIDE_BOXES * 128 < ROW_BYTES) tma_2d(tile + WIDE_BOXES * BOX + first * 64, rope_map, WIDE_BOXES * 128, row, bar);
  }

  __device__ __forceinline__ uint32_t full(int t) const { return tile0 + L::FULL + (uint32_t)t % L::STAGES * 8; }
  __device__ __forceinline__ void copy_rows(const Work& w, int t) const {
    copy(tile0 + (uint32_t)t % L::STAGES * L::BYTES, 0, w.row0 + (w.tile0 + t) * TILE, full(t));
  }
  __device__ __forceinline__ void load(int t) const {
    if (!L::PAGED) {
      mbar_expect(full(t), L::BYTES);
      copy_rows(w, t);
      return;
    }
    const int token = (w.tile0 + t) * TILE;
    const int* pages = a.block_table + (size_t)w.sequence * a.table_stride;
    const int box = min(TILE, 1 << a.page_bits), boxes = (min(TILE, w.len - token) + box - 1) / box;
    mbar_expect(full(t), boxes * box * ROW_BYTES);
#pragma unroll 1
    for (int i = 0; i < boxes; i++) {
      const int at = token + i * box;
      copy(tile0 + (uint32_t)t % L::STAGES * L::BYTES, i * box, (__ldg(pages + (at >> a.page_bits)) << a.page_bits) + (at & ((1 << a.page_bits) - 1)),
           full(t));
    }
  }

  // A tile for every warpgroup at once, the others when the queries are there: they would keep them.
  __device__ __forceinline__ void run(int lane) {
    if (lane == 0) {
      mbar_init(tile0 + L::SUMS_FULL, L::SCORING * 4 * WRITING_LANES);
      L::init_tiles(smem, 1);
      prefetch_map(wide_map);
      prefetch_map(rope_map);
      start_copies(
          a, w, !L::PAGED && a.uniform_len, L::HOLDING, L::HOLDING, [&](const Work& work, int t) { copy_rows(work, t); },
          [&](const Work&, int t) { mbar_expect(full(t), L::BYTES); }, [&](int t) { return full(t); }, [&](int t) { load(t); });
    }
    __syncwarp();
    cluster_arrive();
    begin_together(L::THREADS);
    if (lane == 0)
#pragma unroll 1
      for (int t = L::HOLDING; t < w.tiles; t++) {
        if (t >= L::STAGES) mbar_wait(tile0 + L::EMPTY + (uint32_t)t % L::STAGES * 8, (t / L::STAGES - 1) & 1);
        load(t);
      }
    __syncwarp();
  }
};

template <class L>
__global__ void __launch_bounds__(L::THREADS, L::BLOCKS)
mla_direct(const __grid_constant__ CUtensorMap wide_map, const __grid_constant__ CUtensorMap rope_map, const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31;
  Work w(a);
  QueryRows<QUERY_WARPS<L>> q;
  if (warp < QUERY_WARPS<L>) q.load(a, w, warp, lane);
  if (warp == L::HOLDING * 4) {
    Producer<L>{a, w, &wide_map, &rope_map, smem}.run(lane);
    mbar_poll(smem_u32(smem) + L::SUMS_FULL, 0);
    exchange_sums<L::SCORING, L::HOLDING * 128>(a, w, L::exchange(smem), lane);
  } else {
    multiply<L>(a, w, q, smem, warp, lane);
  }
}
