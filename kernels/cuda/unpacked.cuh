// MLA decode over an mxfp4 KV cache. A producer warp copies packed rows to shared memory; UWG warpgroups take turns in unpacking them once,
// to e5m2, into the tiles that the multiplying warpgroups read.
#pragma once
#include "block.cuh"
#include "unpack.cuh"

// PACKED: packed tiles in shared memory. REGS, UNPACK_REGS: registers per thread of multiplying and unpacking warpgroups, 0 for an even
// distribution. AT_ONCE: chunks that an unpacking thread holds.
template <int NWG, int UWG_, int STAGES, int PACKED_, int REGS_, int UNPACK_REGS_, int AT_ONCE_>
struct Unpacked : Block<Kv::e5m2, NWG, STAGES, UWG_ * 128 + 32> {
  static constexpr int UWG = UWG_, PACKED = PACKED_, REGS = REGS_, UNPACK_REGS = UNPACK_REGS_, AT_ONCE = AT_ONCE_;
  static constexpr int PACKED_AT = (Unpacked::END + 15) & ~15, PACKED_FULL = PACKED_AT + PACKED * PACKED_BYTES, PACKED_EMPTY = PACKED_FULL + PACKED * 8;
  static constexpr int SMEM = PACKED_EMPTY + PACKED * 8;
  static_assert(SMEM <= 232448 && HalfRow::CHUNKS % AT_ONCE == 0);
  static_assert(2 * STAGES % UWG == 0, "see Unpacker::await_stage");
};

template <class L>
__device__ __forceinline__ void copy_packed(const Args& a, const Work& w, uint32_t smem0, int lane) {
  const size_t first = (size_t)w.row0 + w.tile0 * TILE;
  auto load = [&](int t) {
    const uint32_t stage = (uint32_t)t % L::PACKED;
    const size_t row = first + t * TILE;
    load_packed(smem0 + L::PACKED_AT + stage * PACKED_BYTES, a.kv + row * ROW_BYTES4, a.kv_e8m0 + row * a.e8m0_stride, a.e8m0_stride,
                min(TILE, w.len - (w.tile0 + t) * TILE), smem0 + L::PACKED_FULL + stage * 8);
  };
  if (lane == 0)
#pragma unroll 1
    for (int t = 0; t < min(w.tiles, L::PACKED); t++) load(t);
  __syncwarp();
  bar_sync(START_BARRIER, L::THREADS);
  if (lane == 0)
#pragma unroll 1
    for (int t = L::PACKED; t < w.tiles; t++) {
      mbar_wait(smem0 + L::PACKED_EMPTY + (uint32_t)t % L::PACKED * 8, (t / L::PACKED - 1) & 1);
      load(t);
    }
}

template <class L>
struct Unpacker {
  const Args& a;
  const Work& w;
  uint32_t smem0;
  int tid;

  // Parity waits are only right one phase behind. Where a stage belongs to several warpgroups in turn, its last use is awaited first.
  __device__ __forceinline__ void await_packed(int t) const {
    const uint32_t stage = (uint32_t)t % L::PACKED;
    if (L::PACKED % L::UWG && t >= L::PACKED) mbar_wait(smem0 + L::PACKED_EMPTY + stage * 8, (t / L::PACKED - 1) & 1);
    mbar_wait(smem0 + L::PACKED_FULL + stage * 8, (t / L::PACKED) & 1);
  }
  __device__ __forceinline__ void await_stage(int t) const {
    const uint32_t stage = (uint32_t)t % L::STAGES, parity = (t / L::STAGES - 1) & 1;
    if (t < L::STAGES) return;
    if (L::STAGES % L::UWG) mbar_wait(smem0 + L::FULL + stage * 8, parity);   // this warpgroup made it full the time before
    mbar_wait(smem0 + L::EMPTY + stage * 8, parity);
  }

  template <int FIRST>
  __device__ __forceinline__ void unpack_from(const HalfRow& rows, uint32_t tile, int t) const {
    if constexpr (FIRST < HalfRow::CHUNKS) {
      uint32_t x[L::AT_ONCE][4];
      rows.load<FIRST>(x);
      if (FIRST == 0) await_stage(t);
      rows.unpack<FIRST>(tile, x);
      unpack_from<FIRST + L::AT_ONCE>(rows, tile, t);
    }
  }

  __device__ __forceinline__ void run(int wg) const {
    const uint8_t* e8m0 = a.kv_e8m0 + ((size_t)w.row0 + w.tile0 * TILE) * a.e8m0_stride;
#pragma unroll 1
    for (int t = wg; t < w.tiles; t += L::UWG) {
      const uint32_t packed = (uint32_t)t % L::PACKED, stage = (uint32_t)t % L::STAGES;
      const uint32_t skipped = (uint32_t)(uintptr_t)(e8m0 + (size_t)t * TILE * a.e8m0_stride) & 15;
      await_packed(t);
      const HalfRow rows(smem0 + L::PACKED_AT + packed * PACKED_BYTES, skipped, a.e8m0_stride, w.len - (w.tile0 + t) * TILE, tid);
      unpack_from<0>(rows, smem0 + stage * L::BYTES, t);
      mbar_arrive(smem0 + L::PACKED_EMPTY + packed * 8);
      if (rows.half == 0) st_shared(smem0 + L::BASES + (stage * TILE + rows.row) * 4, (uint32_t)rows.base);
      fence_async_proxy();
      mbar_arrive(smem0 + L::FULL + stage * 8);
    }
  }
};

template <class L>
__global__ void __launch_bounds__(L::THREADS, 1) mla_unpacked(const __grid_constant__ Args a) {
  SHARED_MEMORY(smem);
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, wg = warp >> 2;
  Work w(a);
  if (wg == L::NWG + L::UWG) {
    const uint32_t smem0 = smem_u32(smem);
    if (lane == 0) {
      for (int i = 0; i < L::PACKED; i++) {
        mbar_init(smem0 + L::PACKED_FULL + i * 8, 1);
        mbar_init(smem0 + L::PACKED_EMPTY + i * 8, 128);
      }
      L::init_barriers(a, smem, 128);
    }
    cluster_arrive();
    w.find_tiles(a);
    copy_packed<L>(a, w, smem0, lane);
  } else if (wg >= L::NWG) {
    if constexpr (L::REGS) give_registers<L::UNPACK_REGS>();
    cluster_arrive();
    w.find_tiles(a);
    bar_sync(START_BARRIER, L::THREADS);
    Unpacker<L>{a, w, smem_u32(smem), (int)threadIdx.x & 127}.run(wg - L::NWG);
  } else {
    if constexpr (L::REGS) take_registers<L::REGS>();
    multiply<L>(a, w, smem, warp, lane);
  }
}
