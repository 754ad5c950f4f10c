// NVFP4 block-sparse decode in one launch.
#pragma once
#include "merge.cuh"

// FORM of the products (softmax.cuh). TEAMS of a block, STAGES of each warp's ring. BLOCKS: blocks per SM that registers and shared memory are
// sized for. LINEAR: how V scales lie.
template <class FORM_, int TEAMS_, int STAGES_, int BLOCKS_, bool LINEAR_>
struct Variant {
  using FORM = FORM_;
  static constexpr int TEAMS = TEAMS_, STAGES = STAGES_, BLOCKS = BLOCKS_, WARPS = TEAMS * TEAM, THREADS = WARPS * 32, ROWS = FORM::ROWS;
  // HELD: queries, in 32 of 168 registers or 16 of 128.
  // APART: K and V, where a block is alone on its multiprocessor, which has nothing to do until the first K has come.
  static constexpr bool LINEAR = LINEAR_, HELD = THREADS * BLOCKS <= 384 || ROWS == 8, APART = BLOCKS == 1;
  using Tiles = Ring<STAGES, APART>;
  // Offsets in shared memory, bytes. A warp's share of the output overlays its ring.
  static constexpr int RING = STAGES * STAGE_BYTES, WIDENED = WARPS * RING, QUERY = WIDENED + WARPS * WIDENED_BYTES;
  static constexpr int PAGES = QUERY + QueryLayout<ROWS>::BYTES, LSES = PAGES + WARPS * MAX_TOPK * 4, SHARES = LSES + ROWS * WARPS * 4;
  static constexpr int WEIGHTS = SHARES + Inbox<ROWS>::SHARES_BYTES, INBOX_FULL = WEIGHTS + Inbox<ROWS>::WEIGHTS_BYTES;
  static constexpr int BARRIERS = INBOX_FULL + 8, BARS_BYTES = STAGES * Tiles::PARTS * 8, SMEM = BARRIERS + WARPS * BARS_BYTES;
  static_assert(ROWS * SHARE_PITCH <= RING);
};

template <class V>
__global__ void __launch_bounds__(V::THREADS, V::BLOCKS)
nvfp4_decode(const __grid_constant__ CUtensorMap codes, const __grid_constant__ CUtensorMap scales, const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int tid = threadIdx.x, warp = __shfl_sync(~0u, tid >> 5, 0), lane = tid & 31, member = warp % TEAM;
  const Work w(a, tid);
  const uint32_t base = smem_u32(smem);
  const Query<V::ROWS, V::THREADS> query(a, w, tid);
  const float k_scale = __ldg(a.k_scale), v_scale = __ldg(a.v_scale);
  const typename V::Tiles ring(&codes, &scales, a, w, base + warp * V::RING, base + V::BARRIERS + warp * V::BARS_BYTES, member);
  if (elect_one()) ring.init();
  const Inbox<V::ROWS> box{base + V::SHARES, base + V::WEIGHTS, base + V::INBOX_FULL, w.split, a.split_bits};
  box.open(tid);
  const int* pages = reinterpret_cast<const int*>(smem + V::PAGES) + warp * MAX_TOPK;
  const int count = w.list_pages(a, const_cast<int*>(pages), lane);
  const Share share(count, w.split, a.split_bits);
  Piece<V::ROWS, V::WARPS> piece(tid);
  if (share.tiles) {
    pages += share.first + warp / TEAM;
    const int mine = share.tiles - warp / TEAM;            // pages from this team's first on
    const auto ask = [&](int part) {
      if (elect_one())
        for (int i = 0; i < ring.AHEAD && i * V::TEAMS < mine; i++) ring.load_part(pages[i * V::TEAMS], i, part);
      __syncwarp();
    };
    ask(0);
    query.store(base + V::QUERY);
    bar_sync(START_BARRIER, V::THREADS);
    if (V::APART) ask(1);                                  // behind every warp's K
    box.await_others();                                    // not at the end: here the copies hide it
    const Operands<V::ROWS, V::HELD> q(base + V::QUERY, lane);
    Softmax<typename V::FORM> x(q, a.sm_scale * k_scale, lane);
    attend<V>(x, q, ring, pages, mine, (__shfl_sync(~0u, w.pos(a), 0) & (PAGE - 1)) + 1 - member * TILE, base + V::WIDENED + warp * WIDENED_BYTES, lane);
    float* lses = reinterpret_cast<float*>(smem + V::LSES);
    leave_share<V::WARPS>(smem + warp * V::RING, lses, x, warp, lane);
    bar_sync(MERGE_BARRIER, V::THREADS);
    if (piece.there()) sum_shares(piece, base, V::RING, lses);
  } else {
    box.await_others();
  }
  if (a.split_bits == 0) return store_output(a, w, piece, v_scale);
  send(box, piece);
  combine(a, w, box, reinterpret_cast<const float2*>(smem + V::WEIGHTS), v_scale, tid);
}

template <int TEAMS, int STAGES, int BLOCKS, class F>
void with_sizes(int form, F&& f) {
  switch (form) {
    case 0: return f((Variant<Wide, TEAMS, STAGES, BLOCKS, false>*)nullptr);
    case 1: return f((Variant<Wide, TEAMS, STAGES, BLOCKS, true>*)nullptr);
    case 2: return f((Variant<Narrow, TEAMS, STAGES, BLOCKS, false>*)nullptr);
    default: return f((Variant<Narrow, TEAMS, STAGES, BLOCKS, true>*)nullptr);
  }
}

// Calls `f` with a null pointer to the type of a variant; false for a number that has none.
template <class F>
bool with_variant(int variant, F&& f) {
  switch (variant >> 2) {
    case 0: with_sizes<1, 3, 3>(variant & 3, f); return true;
    case 1: with_sizes<1, 2, 4>(variant & 3, f); return true;
    case 2: with_sizes<2, 2, 2>(variant & 3, f); return true;
    case 3: with_sizes<3, 2, 1>(variant & 3, f); return true;
  }
  return false;
}
