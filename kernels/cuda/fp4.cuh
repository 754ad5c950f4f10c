// MLA decode over an mxfp4 KV cache. UWG warpgroups take turns: each holds the packed rows of its next tile in registers and unpacks them
// once, to e5m2, into a ring of tiles. NWG warpgroups do the rest as for fp8.
#pragma once
#include "combine.cuh"
#include "unpack.cuh"

// EARLY: a warpgroup starts the scores of its next tile before the output of the present one.
template <int NWG_, int UWG_, int RING_, int BLOCKS_, bool EARLY_, int REGS_, int UNPACK_REGS_>
struct Fp4 {
  static constexpr bool EARLY = EARLY_;
  static constexpr int NWG = NWG_, UWG = UWG_, RING = RING_, BLOCKS = BLOCKS_, THREADS = (NWG + UWG) * 128;
  static constexpr int REGS = REGS_, UNPACK_REGS = UNPACK_REGS_;
  // Offsets in shared memory, bytes. The combine overlays the ring.
  static constexpr int Q = RING * TILE_BYTES, P = Q + Q_BYTES, TABLE = P + NWG * 2 * P_BYTES;
  static constexpr int ML = TABLE + MAX_CLUSTER * ROWS * 8, ROW_SCALE = ML + NWG * ROWS * 8, TOP = ROW_SCALE + ROWS * 4;
  static constexpr int SUMS = TOP + NWG * 256, BARRIERS = SUMS + NWG * 256, LAST = BARRIERS + (2 * RING + 2) * 8;
  static constexpr int SMEM = LAST + 16;
  static constexpr int OUTBOX = NWG == 2 ? SWAP_BYTES : 0, INBOX = OUTBOX + OUTBOX_BYTES;
  static_assert(INBOX + INBOX_BYTES <= Q);
  static_assert(RING >= NWG * (EARLY ? 2 : 1), "every warpgroup would wait for a tile that another holds");
};

template <class L>
__global__ void __launch_bounds__(L::THREADS, L::BLOCKS) mla_fp4(const __grid_constant__ Args a) {
  constexpr int NWG = L::NWG, RING = L::RING;
  extern __shared__ __align__(1024) uint8_t smem[];
  float* row_scale = reinterpret_cast<float*>(smem + L::ROW_SCALE);
  float* top = reinterpret_cast<float*>(smem + L::TOP);
  const uint32_t tile0 = smem_u32(smem), full = tile0 + L::BARRIERS, empty = full + RING * 8;
  const Exchange exchange = {reinterpret_cast<float2*>(smem + L::TABLE),
                             reinterpret_cast<float2*>(smem + L::ML),
                             reinterpret_cast<float*>(smem + L::SUMS),
                             reinterpret_cast<float4*>(smem),
                             smem + L::OUTBOX,
                             smem + L::INBOX,
                             reinterpret_cast<unsigned*>(smem + L::LAST),
                             empty + RING * 8,
                             empty + RING * 8 + 8};
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, wg = warp >> 2, ww = warp & 3;
  STAMP(0);
  if (threadIdx.x == NWG * 128) {
    init_exchange(exchange, blockIdx.x, a.cluster);
    for (int i = 0; i < RING; i++) {
      mbar_init(full + i * 8, 128);
      mbar_init(empty + i * 8, 4);
    }
    mbar_init_fence();
  }

  if (wg >= NWG) {                                       // unpackers
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(L::UNPACK_REGS));
    cluster_arrive();
    const Work w = find_work(a);
    const int tid = threadIdx.x & 127, first = w.row0 + w.tile0 * TILE, left = w.len - w.tile0 * TILE;
    const uint8_t *kv = a.kv + (size_t)first * ROW_BYTES4, *e8m0 = a.kv_e8m0 + (size_t)first * a.e8m0_stride;
    HalfRow rows;
    auto load = [&](int t) {
      if (t < w.tiles)
        rows.load(kv + (size_t)t * (TILE * ROW_BYTES4), e8m0 + (size_t)t * TILE * a.e8m0_stride, a.e8m0_stride, left - t * TILE, tid);
    };
    load(wg - NWG);
    bar_sync(14, L::THREADS);
#pragma unroll 1
    for (int t = wg - NWG; t < w.tiles; t += L::UWG) {
      const uint32_t slot = (uint32_t)t % RING;
      if (t >= RING) mbar_wait(empty + slot * 8, (t / RING - 1) & 1);
      rows.unpack(tile0 + slot * TILE_BYTES, tid);
      fence_async_proxy();
      mbar_arrive(full + slot * 8);
      load(t + L::UWG);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(L::REGS));

  {
    QueryRows<NWG * 4> q;
    q.load(a, blockIdx.y, warp, lane);
    cluster_arrive();
    STAMP(1);
    q.store(smem + L::Q, row_scale, warp, lane);
  }
  const Work w = find_work(a);
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
    if (t >= RING) mbar_wait(empty + slot * 8, (t / RING - 1) & 1);   // or the parity below could be one use early
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
