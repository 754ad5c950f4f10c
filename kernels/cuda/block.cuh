// What the blocks of every KV format share: the layout of shared memory, and the warpgroups that multiply.
#pragma once
#include "combine.cuh"

constexpr int START_BARRIER = 14;
// What every warp of the block has set up before is there, and all blocks of the cluster have begun.
__device__ __forceinline__ void begin_together(int threads) {
  bar_sync(START_BARRIER, threads);
  cluster_wait();
}

// SCORING warpgroups make scores, of tiles in turn; HOLDING ones hold output. STAGES: tiles of BYTES in shared memory. P_TILES: room for P.
// THREADS: of the whole block.
template <Kv KV_, int SCORING_, int HOLDING_, int STAGES_, int BYTES_, int P_TILES, int THREADS_>
struct Block {
  static constexpr Kv KV = KV_;
  static constexpr int SCORING = SCORING_, HOLDING = HOLDING_, STAGES = STAGES_, BYTES = BYTES_, THREADS = THREADS_;
  // Offsets in shared memory, bytes. The combine overlays the tiles with what a block writes itself, and the queries with what others send it.
  static constexpr int Q = STAGES * BYTES, P = Q + (Q_BYTES > INBOX_BYTES<KV> ? Q_BYTES : INBOX_BYTES<KV>);
  static constexpr int TABLE = P + P_TILES * P_BYTES<KV>, TOTALS = TABLE + MAX_CLUSTER * ROWS * 8, MAXIMA = TOTALS + ROWS * 8;
  static constexpr int ROW_SCALE = MAXIMA + SCORING * ROWS * 4, TOP = ROW_SCALE + ROWS * 4;
  static constexpr int SUMS = TOP + SCORING * 256, BARRIERS = SUMS + SCORING * 256;
  static constexpr int FULL = BARRIERS, EMPTY = FULL + STAGES * 8, EXCHANGE = EMPTY + STAGES * 8, END = EXCHANGE + 16;
  static constexpr int OUTBOX = swap_bytes(HOLDING), INBOX = Q;
  static_assert(OUTBOX + OUTBOX_BYTES<KV> <= Q);
  static_assert(STAGES >= SCORING, "every warpgroup would wait for a tile that another holds");

  static __device__ __forceinline__ Exchange exchange(uint8_t* smem) {
    const uint32_t bars = smem_u32(smem) + EXCHANGE;
    return {reinterpret_cast<float2*>(smem + TABLE), reinterpret_cast<float2*>(smem + TOTALS), reinterpret_cast<float*>(smem + MAXIMA),
            reinterpret_cast<float*>(smem + SUMS), reinterpret_cast<float4*>(smem), smem + OUTBOX, smem + INBOX, bars, bars + 8};
  }

  // One thread. `fillers`: arrivals that make a tile full.
  static __device__ __forceinline__ void init_tiles(uint8_t* smem, int fillers) {
    const uint32_t full = smem_u32(smem) + FULL, empty = smem_u32(smem) + EMPTY;
    for (int i = 0; i < STAGES; i++) {
      mbar_init(full + i * 8, fillers);
      mbar_init(empty + i * 8, 4);
    }
    mbar_init_fence();
  }
};

template <class B>
constexpr int QUERY_WARPS = B::SCORING * 4 < 8 ? B::SCORING * 4 : 8;

// What the warpgroups that make scores do first: queries, which are on their way, to shared memory, and the block's tiles. Returns the factor of
// fp8 values.
template <class B>
__device__ __forceinline__ float prepare_queries(const Args& a, Work& w, QueryRows<QUERY_WARPS<B>>& q, uint8_t* smem, int warp, int lane) {
  if (threadIdx.x == 0) init_exchange<B::KV>(B::exchange(smem), a, w.rank);
  cluster_arrive();
  w.find_tiles(a);
  const float kv_scale = B::KV == Kv::e4m3 ? __ldg(a.kv_scale) : 1.f;
  if (warp < QUERY_WARPS<B>) {
    if constexpr (B::KV == Kv::bf16)
      q.store16(smem + B::Q, warp, lane);
    else
      q.template store<B::KV == Kv::e5m2>(smem + B::Q, reinterpret_cast<float*>(smem + B::ROW_SCALE), warp, lane);
  }
  fence_async_proxy();
  begin_together(B::THREADS);
  return kv_scale;
}

// Warpgroups that make scores and hold output of the same tiles: every NWG-th one, as the copy engine left it. Then the combine.
template <class B>
__device__ __forceinline__ void multiply(const Args& a, Work& w, QueryRows<QUERY_WARPS<B>>& q, uint8_t* smem, int warp, int lane) {
  constexpr int NWG = B::HOLDING, STAGES = B::STAGES;
  constexpr Kv KV = B::KV;
  static_assert(B::SCORING == NWG);
  const uint32_t tile0 = smem_u32(smem), full = tile0 + B::FULL, empty = tile0 + B::EMPTY;
  const int wg = warp >> 2, ww = warp & 3;
  const float kv_scale = prepare_queries<B>(a, w, q, smem, warp, lane);
  Softmax x;
  Output o;
  x.init(KV == Kv::bf16 ? nullptr : reinterpret_cast<const float*>(smem + B::ROW_SCALE), a.sm_scale * kv_scale, lane);
  o.clear();
  const uint32_t q_addr = tile0 + B::Q, p_addr = tile0 + B::P + wg * 2 * P_BYTES<KV>;
  float* top = reinterpret_cast<float*>(smem + B::TOP) + wg * 64;
  const int mine = __shfl_sync(~0u, (w.tiles - wg + NWG - 1) / NWG, 0);   // warp-uniform for the compiler
  float d[SCORES<KV>];
  auto tile_at = [&](int t) { return tile0 + (uint32_t)t % STAGES * B::BYTES; };
  auto start = [&](int t) {
    const uint32_t stage = (uint32_t)t % STAGES;
    // A stage that other warpgroups use too: its barrier may be more than one phase behind, and a parity wait would be early.
    if (STAGES % NWG && t >= STAGES) mbar_wait(empty + stage * 8, (t / STAGES - 1) & 1);
    mbar_wait(full + stage * 8, (t / STAGES) & 1);
    start_scores<KV>(d, tile_at(t), q_addr);
  };
  auto softmax = [&](int i, int t) {
    float s[8];
    wgmma_wait(d);
    tile_logits<KV>(s, d, x, Bases(), (w.tile0 + t) * TILE + ww * 16 + (lane >> 2), w.len);
    tile_softmax<KV>(x, s, Bases(), p_store_addr(p_addr + (i & 1) * P_BYTES<KV>, ww, lane), top, 1 + wg, ww, lane,
                     [&](const float (&alpha)[4]) { scale_output(o, alpha, lane); });
  };
  auto output = [&](int i, int t) {
    const int rows = w.len - (w.tile0 + t) * TILE;
    if (rows < TILE) clear_rows<KV>(tile_at(t), rows, ww, lane);
    tile_output<KV>(o.acc, tile_at(t), p_addr + (i & 1) * P_BYTES<KV>, ww, lane);
    __syncwarp();
    if (lane == 0) mbar_arrive(empty + (uint32_t)t % STAGES * 8);
  };
  const Exchange e = B::exchange(smem);
  float2 reference;
  // One copy of everything, for the instruction cache: also a warpgroup without tiles comes by once.
#pragma unroll 1
  for (int i = 0, t = wg; i < max(mine, 1); i++, t += NWG) {
    if (mine > 0) {
      start(t);
      softmax(i, t);
    }
    if (i + 1 >= mine) {
      reduce_sums(e, x, wg, ww, lane);
      if (lane < WRITING_LANES) mbar_arrive(tile0 + B::SUMS_FULL);
      reference = of_output_rows(x.m, lane);
    }
    if (mine > 0) output(i, t);
  }
  const float maxima[2] = {reference.x, reference.y};
  combine<KV, NWG>(a, w, e, o, maxima, kv_scale, wg, ww, lane);
}
