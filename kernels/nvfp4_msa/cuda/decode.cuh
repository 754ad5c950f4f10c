// NVFP4 block-sparse decode in one launch.
#pragma once
#include "merge.cuh"

// TEAMS of a block, STAGES of each warp's ring. BLOCKS: blocks per SM that registers and shared memory are sized for. LINEAR: how V scales lie.
template <int TEAMS_, int STAGES_, int BLOCKS_, bool LINEAR_>
struct Variant {
  static constexpr int TEAMS = TEAMS_, STAGES = STAGES_, BLOCKS = BLOCKS_, WARPS = TEAMS * TEAM, THREADS = WARPS * 32;
  static constexpr bool LINEAR = LINEAR_, HELD = THREADS * BLOCKS <= 384;   // HELD: queries, in 32 of 168 registers
  using Part = Piece<WARPS>;
  // Offsets in shared memory, bytes. What a block merges overlays the rings.
  static constexpr int RING = STAGES * STAGE_BYTES, WIDENED = WARPS * RING, QUERY = WIDENED + WARPS * WIDENED_BYTES, PAGES = QUERY + QUERY_BYTES;
  static constexpr int SUMS = PAGES + WARPS * MAX_TOPK * 4, SHARES = SUMS + Part::SUMS_BYTES, WEIGHTS = SHARES + INBOX_BYTES;
  static constexpr int INBOX_FULL = WEIGHTS + WEIGHTS_BYTES, BARRIERS = INBOX_FULL + 8, SMEM = BARRIERS + WARPS * STAGES * 8;
  static_assert(Part::SHARES_BYTES <= WIDENED);
};

// The warp's share of the listed pages: every TEAMS-th from its team's first. `visible`: tokens of its tile that it sees in the row's own block.
template <class V>
__device__ __forceinline__ void attend(Softmax& x, const Operands<V::HELD>& q, const Ring<V::STAGES>& ring, const int* pages, int count, int visible,
                                       uint32_t widened, int lane) {
  const Places at = Places::of<V::LINEAR>(lane, widened);
  int stage = 0, parity = 0;
#pragma unroll 1
  for (int i = 0; i < count; i += V::TEAMS) {
    const int seen = pages[i] < 0 ? visible : TILE;
    mbar_wait(ring.bars + stage * 8, parity);
    if (seen > 0) attend_tile<V::LINEAR>(x, q, ring.stage(stage), at, seen, lane);
    __syncwarp();
    const int next = i + V::STAGES * V::TEAMS;
    if (lane == 0 && next < count) ring.load(pages[next], stage);
    if (++stage == V::STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
}

template <class V>
__global__ void __launch_bounds__(V::THREADS, V::BLOCKS)
nvfp4_decode(const __grid_constant__ CUtensorMap codes, const __grid_constant__ CUtensorMap scales, const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int tid = threadIdx.x, warp = __shfl_sync(~0u, tid >> 5, 0), lane = tid & 31, member = warp % TEAM;
  const Work w(a, lane);
  const uint32_t base = smem_u32(smem);
  Query q(a, w, base + V::QUERY, lane);
  const float k_scale = __ldg(a.k_scale), v_scale = __ldg(a.v_scale);
  const Inbox box{base + V::SHARES, base + V::WEIGHTS, base + V::INBOX_FULL, w.split, a.split_bits};
  if (a.split_bits) {
    if (tid == 0) box.init();
    __syncwarp();
    cluster_arrive();
  }
  const int* pages = reinterpret_cast<const int*>(smem + V::PAGES) + warp * MAX_TOPK;
  const Ring<V::STAGES> ring(&codes, &scales, a, w, base + warp * V::RING, base + V::BARRIERS + warp * V::STAGES * 8, member);
  if (lane == 0) ring.init();
  const int count = w.list_pages(a, const_cast<int*>(pages), lane);
  const Share share(count, w.split, a.split_bits);
  typename V::Part piece(tid);
  Totals totals{{0.f, 0.f}, {-INFINITY, -INFINITY}};
  if (share.tiles) {
    pages += share.first + warp / TEAM;
    const int mine = share.tiles - warp / TEAM;            // pages from this team's first on
    if (lane == 0)
      for (int i = 0; i < V::STAGES && i * V::TEAMS < mine; i++) ring.load(pages[i * V::TEAMS], i);
    __syncwarp();
    q.store(member);
    bar_sync(START_BARRIER, V::THREADS);
    Softmax x(q, a.sm_scale * k_scale);
    attend<V>(x, Operands<V::HELD>(q), ring, pages, mine, (w.pos & (PAGE - 1)) + 1 - member * TILE, base + V::WIDENED + warp * WIDENED_BYTES, lane);
    totals = block_totals<V::WARPS>(x, reinterpret_cast<float2*>(smem + V::SUMS), tid);
    merge_warps(piece, x, totals, smem, tid);
  }
  if (a.split_bits == 0) return store_output(a, w, piece, v_scale);
  cluster_wait();                                          // all blocks of the cluster have started
  send(box, piece, totals, tid);
  combine(a, w, box, reinterpret_cast<const float2*>(smem + V::WEIGHTS), v_scale, tid);
}

// Calls `f` with a null pointer to the type of a variant; false for a number that has none.
template <class F>
bool with_variant(int variant, F&& f) {
  switch (variant) {
    case 0: f((Variant<1, 3, 3, false>*)nullptr); return true;
    case 1: f((Variant<1, 3, 3, true>*)nullptr); return true;
    case 2: f((Variant<1, 2, 4, false>*)nullptr); return true;
    case 3: f((Variant<1, 2, 4, true>*)nullptr); return true;
    case 4: f((Variant<4, 2, 1, false>*)nullptr); return true;
    case 5: f((Variant<4, 2, 1, true>*)nullptr); return true;
    case 6: f((Variant<2, 2, 2, false>*)nullptr); return true;
    case 7: f((Variant<2, 2, 2, true>*)nullptr); return true;
  }
  return false;
}
