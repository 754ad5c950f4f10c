// What the blocks of every KV format share: the layout of shared memory, and the warpgroups that multiply.
#pragma once
#include "combine.cuh"

constexpr int START_BARRIER = 14;

// NWG: multiplying warpgroups, which take the tiles in turn. STAGES: tiles in shared memory. OTHERS: threads besides NWG * 128, which fill them.
template <Kv KV_, int NWG_, int STAGES_, int OTHERS>
struct Block {
  static constexpr Kv KV = KV_;
  static constexpr int BYTES = TILE_BYTES<KV>, NWG = NWG_, STAGES = STAGES_, THREADS = NWG * 128 + OTHERS;
  // Offsets in shared memory, bytes. The combine overlays the tiles.
  static constexpr int Q = STAGES * BYTES, P = Q + Q_BYTES, TABLE = P + NWG * 2 * P_BYTES;
  static constexpr int ML = TABLE + MAX_CLUSTER * ROWS * 8, ROW_SCALE = ML + NWG * ROWS * 8, TOP = ROW_SCALE + ROWS * 4;
  static constexpr int SUMS = TOP + NWG * 256, BASES = SUMS + NWG * 256, BARRIERS = BASES + (KV == Kv::e5m2 ? STAGES * TILE * 4 : 0);
  static constexpr int FULL = BARRIERS, EMPTY = FULL + STAGES * 8, EXCHANGE = EMPTY + STAGES * 8, END = EXCHANGE + 16;
  static constexpr int OUTBOX = swap_bytes(NWG), INBOX = OUTBOX + OUTBOX_BYTES;
  static_assert(INBOX + INBOX_BYTES <= Q);
  static_assert(STAGES >= NWG, "every warpgroup would wait for a tile that another holds");

  static __device__ __forceinline__ Exchange exchange(uint8_t* smem) {
    const uint32_t bars = smem_u32(smem) + EXCHANGE;
    return {reinterpret_cast<float2*>(smem + TABLE), reinterpret_cast<float2*>(smem + ML), reinterpret_cast<float*>(smem + SUMS),
            reinterpret_cast<float4*>(smem), smem + OUTBOX, smem + INBOX, bars, bars + 8};
  }

  // One thread, before the block's cluster_arrive. `fillers`: arrivals that make a tile full.
  static __device__ __forceinline__ void init_barriers(const Args& a, uint8_t* smem, int fillers) {
    const uint32_t full = smem_u32(smem) + FULL, empty = smem_u32(smem) + EMPTY;
    init_exchange(exchange(smem), blockIdx.x, a.cluster);
    for (int i = 0; i < STAGES; i++) {
      mbar_init(full + i * 8, fillers);
      mbar_init(empty + i * 8, 4);
    }
    mbar_init_fence();
  }
};

// The multiplying warpgroups: queries, then scores, softmax and output of every NWG-th tile, then the combine.
template <class B>
__device__ __forceinline__ void multiply(const Args& a, Work& w, uint8_t* smem, int warp, int lane) {
  constexpr int NWG = B::NWG, STAGES = B::STAGES, QUERY_WARPS = NWG * 4 < 8 ? NWG * 4 : 8;
  constexpr Kv KV = B::KV;
  float* row_scale = reinterpret_cast<float*>(smem + B::ROW_SCALE);
  const uint32_t tile0 = smem_u32(smem), full = tile0 + B::FULL, empty = tile0 + B::EMPTY;
  const int wg = warp >> 2, ww = warp & 3;

  QueryRows<QUERY_WARPS> q;
  if (warp < QUERY_WARPS) q.load(a, w, warp, lane);
  cluster_arrive();
  w.find_tiles(a);
  const float kv_scale = KV == Kv::e4m3 ? __ldg(a.kv_scale) : 1.f;
  if (warp < QUERY_WARPS) {
    if constexpr (KV == Kv::bf16)
      q.store16(smem + B::Q, warp, lane);
    else
      q.store(smem + B::Q, row_scale, warp, lane);
  }
  fence_async_proxy();
  bar_sync(START_BARRIER, B::THREADS);

  Softmax x;
  x.init(KV == Kv::bf16 ? nullptr : row_scale, a.sm_scale * kv_scale, lane);
  const uint32_t q_addr = tile0 + B::Q, p_addr = tile0 + B::P + wg * 2 * P_BYTES;
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
    const int row = ww * 16 + (lane >> 2);
    float s[8];
    Bases bases;
    if (KV == Kv::e5m2) {
      const int* stored = reinterpret_cast<const int*>(smem + B::BASES) + (uint32_t)t % STAGES * TILE + row;
      bases.exponent[0] = stored[0];
      bases.exponent[1] = stored[8];
    }
    wgmma_wait(d);
    tile_logits<KV>(s, d, x, bases, (w.tile0 + t) * TILE + row, w.len);
    tile_softmax<KV>(x, s, bases, p_store_addr(p_addr + (i & 1) * P_BYTES, ww, lane), top, 1 + wg, ww, lane);
  };
  auto output = [&](int i, int t) {
    const int rows = w.len - (w.tile0 + t) * TILE;
    if (KV != Kv::e5m2 && rows < TILE) clear_rows<KV>(tile_at(t), rows, ww, lane);
    tile_output<KV>(x.acc, tile_at(t), p_addr + (i & 1) * P_BYTES, ww, lane);
    __syncwarp();
    if (lane == 0) mbar_arrive(empty + (uint32_t)t % STAGES * 8);
  };
  if (mine > 0) {
    int i = 0, t = wg;
    start(t);
#pragma unroll 1
    for (; i + 1 < mine; i++, t += NWG) {
      softmax(i, t);
      output(i, t);
      start(t + NWG);
    }
    softmax(i, t);
    output(i, t);
  }
  finish<KV, NWG>(a, w, B::exchange(smem), x, kv_scale, wg, ww, lane);
}
