// In development: not part of submission.py. Block scales outside 2^-13 .. 2^13 are clamped.
// MLA decode over an mxfp4 KV cache. A producer warp copies packed rows to shared memory; UWG warpgroups take turns in unpacking them once,
// to e5m2, into a ring of tiles; NWG warpgroups do the rest as for fp8.
#pragma once
#include "combine.cuh"
#include "unpack.cuh"

// EARLY: a warpgroup starts the scores of its next tile before the output of the present one. REGS: registers per thread, 0 for an even
// distribution.
template <int NWG_, int UWG_, int RING_, int PACKED_, bool EARLY_, int REGS_, int UNPACK_REGS_>
struct Fp4 {
  static constexpr bool EARLY = EARLY_;
  static constexpr int NWG = NWG_, UWG = UWG_, RING = RING_, PACKED = PACKED_, THREADS = (NWG + UWG) * 128 + 32;
  static constexpr int REGS = REGS_, UNPACK_REGS = UNPACK_REGS_;
  // A stage always belongs to the same warpgroup, or a parity wait could be one use early.
  static_assert(RING % NWG == 0 && RING % UWG == 0 && PACKED % UWG == 0);
  static_assert(RING >= NWG * (EARLY ? 2 : 1), "every warpgroup would wait for a tile that another holds");
  // Offsets in shared memory, bytes. The combine overlays the ring.
  static constexpr int STAGES = RING * TILE_BYTES, Q = STAGES + PACKED * PACKED_BYTES, P = Q + Q_BYTES, TABLE = P + NWG * 2 * P_BYTES;
  static constexpr int ML = TABLE + MAX_CLUSTER * ROWS * 8, ROW_SCALE = ML + NWG * ROWS * 8, TOP = ROW_SCALE + ROWS * 4;
  static constexpr int SUMS = TOP + NWG * 256, BARRIERS = SUMS + NWG * 256, LAST = BARRIERS + (2 * RING + 2 * PACKED + 2) * 8;
  static constexpr int SMEM = LAST + 16;
  static constexpr int OUTBOX = NWG == 2 ? SWAP_BYTES : 0, INBOX = OUTBOX + OUTBOX_BYTES;
  static_assert(INBOX + INBOX_BYTES <= STAGES && Q % 1024 == 0 && SMEM <= 232448);
};

template <class L>
__global__ void __launch_bounds__(L::THREADS, 1) mla_fp4(const __grid_constant__ Args a) {
  constexpr int NWG = L::NWG, UWG = L::UWG, RING = L::RING, PACKED = L::PACKED;
  extern __shared__ __align__(1024) uint8_t smem[];
  float* row_scale = reinterpret_cast<float*>(smem + L::ROW_SCALE);
  float* top = reinterpret_cast<float*>(smem + L::TOP);
  const uint32_t tile0 = smem_u32(smem), full = tile0 + L::BARRIERS, empty = full + RING * 8;
  const uint32_t packed_full = empty + RING * 8, packed_empty = packed_full + PACKED * 8, exchange_bars = packed_empty + PACKED * 8;
  const Exchange exchange = {reinterpret_cast<float2*>(smem + L::TABLE),
                             reinterpret_cast<float2*>(smem + L::ML),
                             reinterpret_cast<float*>(smem + L::SUMS),
                             reinterpret_cast<float4*>(smem),
                             smem + L::OUTBOX,
                             smem + L::INBOX,
                             reinterpret_cast<unsigned*>(smem + L::LAST),
                             exchange_bars,
                             exchange_bars + 8};
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, wg = warp >> 2, ww = warp & 3;
  STAMP(0);
  Work w(a);
  if (wg == NWG + UWG) {                                 // producer
    if (lane == 0) {
      init_exchange(exchange, blockIdx.x, a.cluster);
      for (int i = 0; i < RING; i++) {
        mbar_init(full + i * 8, 128);
        mbar_init(empty + i * 8, 4);
      }
      for (int i = 0; i < PACKED; i++) {
        mbar_init(packed_full + i * 8, 1);
        mbar_init(packed_empty + i * 8, 128);
      }
      mbar_init_fence();
    }
    cluster_arrive();
    w.find_tiles(a);
    const size_t first = (size_t)w.row0 + w.tile0 * TILE;
    auto load = [&](int t) {
      const uint32_t stage = (uint32_t)t % PACKED;
      const size_t row = first + t * TILE;
      load_packed(tile0 + L::STAGES + stage * PACKED_BYTES, a.kv + row * ROW_BYTES4, a.kv_e8m0 + row * a.e8m0_stride, a.e8m0_stride,
                  min(TILE, w.len - (w.tile0 + t) * TILE), packed_full + stage * 8);
    };
    if (lane == 0)
#pragma unroll 1
      for (int t = 0; t < min(w.tiles, PACKED); t++) load(t);
    __syncwarp();
    bar_sync(14, L::THREADS);
    if (lane == 0)
#pragma unroll 1
      for (int t = PACKED; t < w.tiles; t++) {
        mbar_wait(packed_empty + (uint32_t)t % PACKED * 8, (t / PACKED - 1) & 1);
        load(t);
      }
    return;
  }
  if (wg >= NWG) {                                       // unpackers
    if (L::REGS) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(L::REGS ? L::UNPACK_REGS : 24));
    cluster_arrive();
    w.find_tiles(a);
    const int tid = threadIdx.x & 127;
    const uint8_t* e8m0 = a.kv_e8m0 + ((size_t)w.row0 + w.tile0 * TILE) * a.e8m0_stride;
    bar_sync(14, L::THREADS);
#pragma unroll 1
    for (int t = wg - NWG; t < w.tiles; t += UWG) {
      const uint32_t stage = (uint32_t)t % PACKED, slot = (uint32_t)t % RING;
      const uint32_t skipped = (uint32_t)(uintptr_t)(e8m0 + (size_t)t * TILE * a.e8m0_stride) & 15;
      HalfRow rows;
      mbar_wait(packed_full + stage * 8, (t / PACKED) & 1);
      rows.load(tile0 + L::STAGES + stage * PACKED_BYTES, skipped, a.e8m0_stride, w.len - (w.tile0 + t) * TILE, tid);
      if (t >= RING) mbar_wait(empty + slot * 8, (t / RING - 1) & 1);
      rows.unpack(tile0 + slot * TILE_BYTES, tid);
      mbar_arrive(packed_empty + stage * 8);
      fence_async_proxy();
      mbar_arrive(full + slot * 8);
    }
    return;
  }
  if (L::REGS) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(L::REGS ? L::REGS : 24));

  {
    QueryRows<NWG * 4> q;
    q.load(a, w, warp, lane);
    cluster_arrive();
    STAMP(1);
    q.store(smem + L::Q, row_scale, warp, lane);
  }
  w.find_tiles(a);
  fence_async_proxy();
  STAMP(2);
  bar_sync(14, L::THREADS);
  STAMP(3);

  Softmax x;
  x.init(row_scale, a.sm_scale, lane);
  const uint32_t q_addr = tile0 + L::Q, p_addr = tile0 + L::P + wg * 2 * P_BYTES;
  const int mine = __shfl_sync(~0u, (w.tiles - wg + NWG - 1) / NWG, 0);   // every NWG-th tile; warp-uniform for the compiler
  float d[16];
  auto tile_at = [&](int t) { return tile0 + (uint32_t)t % RING * TILE_BYTES; };
  auto start = [&](int t) {
    const uint32_t slot = (uint32_t)t % RING;
    mbar_wait(full + slot * 8, (t / RING) & 1);
    start_scores<true>(d, tile_at(t), q_addr);
  };
  auto softmax = [&](int i, int t) {
    float s[8];
    wgmma_wait(d);
    tile_logits(s, d, x, (w.tile0 + t) * TILE + ww * 16 + (lane >> 2), w.len);
    tile_softmax(x, s, p_store_addr(p_addr + (i & 1) * P_BYTES, ww, lane), top + wg * 64, 1 + wg, ww, lane);
  };
  auto output = [&](int i, int t) {
    tile_output<true>(x.acc, tile_at(t) + ww * BOX, p_addr + (i & 1) * P_BYTES, lane);
    __syncwarp();
    if (lane == 0) mbar_arrive(empty + (uint32_t)t % RING * 8);
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
  finish<NWG>(a, w, exchange, x, 1.f, wg, ww, lane);
}
