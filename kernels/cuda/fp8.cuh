// MLA decode over an fp8 (e4m3) KV cache: the copy engine's tile is the tensor cores' operand.
#pragma once
#include "combine.cuh"

// BLOCKS: blocks per SM that the registers and the shared memory are sized for.
// EARLY: a warpgroup starts the scores of its next tile before the output of the present one.
template <int NWG_, int STAGES_, int BLOCKS_, bool EARLY_>
struct Fp8 {
  static constexpr bool EARLY = EARLY_;
  static constexpr int NWG = NWG_, STAGES = STAGES_, BLOCKS = BLOCKS_, THREADS = NWG * 128 + 32;
  // Offsets in shared memory, bytes. The combine overlays the KV stages.
  static constexpr int Q = STAGES * TILE_BYTES, P = Q + Q_BYTES, TABLE = P + NWG * 2 * P_BYTES;
  static constexpr int ML = TABLE + MAX_CLUSTER * ROWS * 8, ROW_SCALE = ML + NWG * ROWS * 8, TOP = ROW_SCALE + ROWS * 4;
  static constexpr int SUMS = TOP + NWG * 256, BARRIERS = SUMS + NWG * 256, LAST = BARRIERS + (2 * STAGES + 2) * 8;
  static constexpr int SMEM = LAST + 16;
  static constexpr int OUTBOX = NWG == 2 ? SWAP_BYTES : 0, INBOX = OUTBOX + OUTBOX_BYTES;
  static_assert(INBOX + INBOX_BYTES <= Q);
  static_assert(STAGES >= NWG * (EARLY ? 2 : 1), "every warpgroup would wait for a tile that another holds");
};

template <class L>
__global__ void __launch_bounds__(L::THREADS, L::BLOCKS)
mla_fp8(const __grid_constant__ CUtensorMap nope_map, const __grid_constant__ CUtensorMap rope_map, const __grid_constant__ Args a) {
  constexpr int NWG = L::NWG, STAGES = L::STAGES;
  extern __shared__ __align__(1024) uint8_t smem[];
  float* row_scale = reinterpret_cast<float*>(smem + L::ROW_SCALE);
  float* top = reinterpret_cast<float*>(smem + L::TOP);
  const uint32_t stage0 = smem_u32(smem), full = stage0 + L::BARRIERS, empty = full + STAGES * 8;
  const Exchange exchange = {reinterpret_cast<float2*>(smem + L::TABLE),
                             reinterpret_cast<float2*>(smem + L::ML),
                             reinterpret_cast<float*>(smem + L::SUMS),
                             reinterpret_cast<float4*>(smem),
                             smem + L::OUTBOX,
                             smem + L::INBOX,
                             reinterpret_cast<unsigned*>(smem + L::LAST),
                             empty + STAGES * 8,
                             empty + STAGES * 8 + 8};
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31;
  STAMP(0);
  Work w(a);
  QueryRows<NWG * 4> q;
  if (warp < NWG * 4) {
    q.load(a, w, warp, lane);
  } else if (lane == 0) {
    init_exchange(exchange, w.rank, a.cluster);
    for (int i = 0; i < STAGES; i++) {
      mbar_init(full + i * 8, 1);
      mbar_init(empty + i * 8, 4);
    }
    mbar_init_fence();
  }
  STAMP(19);
  cluster_arrive();
  STAMP(20);
  w.find_tiles(a);
  if (warp == NWG * 4) {                                 // producer
    auto load = [&](int t) {
      const uint32_t stage = t % STAGES, dst = stage0 + stage * TILE_BYTES, bar = full + stage * 8;
      const int row = w.row0 + (w.tile0 + t) * TILE;
      mbar_expect(bar, TILE_BYTES);
#pragma unroll
      for (int c = 0; c < 4; c++) tma_2d(dst + c * BOX, &nope_map, c * 128, row, bar);
      tma_2d(dst + 4 * BOX, &rope_map, D_V, row, bar);
    };
    if (lane == 0) {
      prefetch_map(&nope_map);
      prefetch_map(&rope_map);
#pragma unroll 1
      for (int t = 0; t < min(w.tiles, STAGES); t++) load(t);
    }
    __syncwarp();
    bar_sync(14, NWG * 128 + 32);
    if (lane == 0)
#pragma unroll 1
      for (int t = STAGES; t < w.tiles; t++) {
        mbar_wait(empty + (t % STAGES) * 8, (t / STAGES - 1) & 1);
        load(t);
      }
    return;
  }

  const int wg = warp >> 2, ww = warp & 3;
  const float v_scale = __ldg(a.kv_scale);
  STAMP(1);
  q.store(smem + L::Q, row_scale, warp, lane);
  fence_async_proxy();
  STAMP(2);
  bar_sync(14, NWG * 128 + 32);
  STAMP(3);

  Softmax x;
  x.init(row_scale, a.sm_scale * v_scale, lane);
  const uint32_t q_addr = stage0 + L::Q, p_addr = stage0 + L::P + wg * 2 * P_BYTES;
  const int mine = __shfl_sync(~0u, (w.tiles - wg + NWG - 1) / NWG, 0);   // every NWG-th tile; warp-uniform for the compiler
  float d[16];
  auto tile_at = [&](int t) { return stage0 + (uint32_t)t % STAGES * TILE_BYTES; };
  auto start = [&](int t) {
    const uint32_t stage = (uint32_t)t % STAGES;
    if (t >= STAGES) mbar_wait(empty + stage * 8, (t / STAGES - 1) & 1);   // or the parity below could be one use early
    mbar_wait(full + stage * 8, (t / STAGES) & 1);
    start_scores<false>(d, tile_at(t), q_addr);
  };
  auto softmax = [&](int i, int t) {
    float s[8];
    wgmma_wait(d);
    tile_logits(s, d, x, (w.tile0 + t) * TILE + ww * 16 + (lane >> 2), w.len);
    tile_softmax(x, s, p_store_addr(p_addr + (i & 1) * P_BYTES, ww, lane), top + wg * 64, 1 + wg, ww, lane);
  };
  auto output = [&](int i, int t) {
    if (w.len - (w.tile0 + t) * TILE < TILE) clear_rows(tile_at(t) + ww * BOX, w.len - (w.tile0 + t) * TILE, lane);
    tile_output<false>(x.acc, tile_at(t) + ww * BOX, p_addr + (i & 1) * P_BYTES, lane);
    __syncwarp();
    if (lane == 0) mbar_arrive(empty + (uint32_t)t % STAGES * 8);
  };
  if (mine > 0) {
    int i = 0, t = wg;
    start(t);
#pragma unroll 1
    for (; i + 1 < mine; i++, t += NWG) {
      softmax(i, t);
      if (L::EARLY) start(t + NWG);
      output(i, t);
      if (!L::EARLY) start(t + NWG);
    }
    softmax(i, t);
    output(i, t);
  }
  finish<NWG>(a, w, exchange, x, v_scale, wg, ww, lane);
}
