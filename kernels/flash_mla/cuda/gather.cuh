// Selected tokens of a V32 cache to f16 tiles: 128 threads, of which each warp gathers 16 tokens of a tile.
//
// The next tile's bytes are on their way, in registers, while this one is multiplied. RoPE needs no widening and is copied past the
// registers. The fence between these stores and wgmma is the reader's: here it would wait for the loads.
#pragma once
#include "block.cuh"

// NoPE of a warp's 16 tokens. Load (set, run): 16 values, from 128 run + 16 chunk(lane), of token 4 set + member(lane): eight lanes read the
// 128 values of a token that share a scale. Those that store together hold two rows of four chunks, whose swizzles differ in parity: no two
// meet in a bank.
struct Tokens {
  uint32_t nope[4][4][4];
  uint32_t scale[2];                                     // of token 8 i + lane / 4, run lane % 4

  static __device__ __forceinline__ int member(int lane) { return (lane >> 2 & 1) + (lane >> 4) * 2; }
  static __device__ __forceinline__ int chunk(int lane) { return (lane & 3) + (lane >> 3 & 1) * 4; }

  // `row` is the address of token lane % 16.
  __device__ __forceinline__ void load(uint64_t row, int lane) {
    const auto of = [&](int token) { return reinterpret_cast<const uint8_t*>(__shfl_sync(~0u, row, token)); };
#pragma unroll
    for (int i = 0; i < 2; i++) ld_global(scale[i], of(8 * i + (lane >> 2)) + SCALES_AT + (lane & 3) * 4);
#pragma unroll
    for (int set = 0; set < 4; set++) {
      const uint8_t* src = of(4 * set + member(lane)) + chunk(lane) * 16;
#pragma unroll
      for (int run = 0; run < 4; run++) ld_global(nope[set][run], src + run * 128);
    }
  }

  // To 16 rows of the tile from `rows` on. 64 values of a token share a box; every fourth row and every other 16 bytes lie at a distance that
  // swizzling turns into an xor.
  __device__ __forceinline__ void store(uint32_t rows, int lane) const {
    const int r = member(lane);
    const uint32_t place = rows + (lane >> 3 & 1) * BOX + r * 128 + ((2 * (lane & 3) ^ r) << 4);
    uint32_t scale2[2];
#pragma unroll
    for (int i = 0; i < 2; i++) scale2[i] = pack_f16(__uint_as_float(scale[i]), __uint_as_float(scale[i]));
#pragma unroll
    for (int set = 0; set < 4; set++)
#pragma unroll
      for (int run = 0; run < 4; run++) {
        const uint32_t by = __shfl_sync(~0u, scale2[set >> 1], 4 * (4 * (set & 1) + r) + run);
#pragma unroll
        for (int j = 0; j < 2; j++) {
          uint32_t o[4];
#pragma unroll
          for (int k = 0; k < 2; k++) {
            e4m3x4_to_f16(o[2 * k], o[2 * k + 1], nope[set][run][2 * j + k]);
            o[2 * k] = mul_f16x2(o[2 * k], by);
            o[2 * k + 1] = mul_f16x2(o[2 * k + 1], by);
          }
          st_shared((place ^ ((set & 1) << 6 | j << 4)) + set * 512 + run * 2 * BOX, o);
        }
      }
  }
};

// RoPE of the 16 tokens of a warp, whose addresses its lanes hold, to 16 rows of a box: four tokens at a time, eight lanes each. Every fourth
// row's swizzle is an xor.
__device__ __forceinline__ void copy_rope(uint32_t rows, uint64_t row, int lane) {
  const int member = lane >> 3;
  const uint32_t place = rows + member * 128 + (((lane & 7) ^ member) << 4);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint8_t* src = reinterpret_cast<const uint8_t*>(__shfl_sync(~0u, row, 4 * i + member));
    copy_16((place ^ (i & 1) << 6) + i * 512, src + ROPE_AT + (lane & 7) * 16);
  }
}

struct Gatherer {
  const Args& a;
  const Work& w;
  const int* entries;                                    // of the index row, from this warp's and lane's first
  uint32_t smem0, reciprocal;                            // of the page size, 2^32 times
  int warp, lane;

  __device__ __forceinline__ Gatherer(const Args& args, const Work& work, uint32_t smem, int warp_of_group, int lane_of_warp)
      : a(args), w(work), smem0(smem), warp(warp_of_group), lane(lane_of_warp) {
    entries = a.indices + (size_t)w.token * a.topk + position(0);
    reciprocal = ~0u / (uint32_t)a.page_size;
  }
  __device__ __forceinline__ int position(int t) const { return (w.tile0 + t) * TILE + warp * 16 + (lane & 15); }
  // Entry of the index row for tile t; past its end one that is not valid.
  __device__ __forceinline__ uint32_t index(int t) const { return position(t) < w.length && t < w.tiles ? __ldg(entries + t * TILE) : ~0u; }
  // Read unsigned, a negative index is out of range too.
  __device__ __forceinline__ bool valid(uint32_t index) const { return index < (uint32_t)a.cache_tokens; }
  __device__ __forceinline__ uint64_t row(uint32_t index) const {
    uint32_t page = __umulhi(index, reciprocal), slot = index - page * a.page_size;   // or one less than the page
    if (slot >= (uint32_t)a.page_size) {
      page++;
      slot -= a.page_size;
    }
    const uint8_t* there = a.cache + (uint64_t)page * a.page_bytes + (uint64_t)slot * ROW_BYTES;
    return reinterpret_cast<uint64_t>(valid(index) ? there : a.zeros);
  }

  __device__ __forceinline__ void run() const {
    Tokens tokens;
    uint32_t now = index(0), next = index(1);
    uint64_t from = row(now);
#pragma unroll 1
    for (int t = 0; t < w.tiles; t++) {
      const uint32_t stage = (uint32_t)t % STAGES, tile = smem0 + TILES_AT + stage * OPERAND_BYTES, full = smem0 + FULL_AT + stage * 8;
      const uint32_t rows = tile + warp * 16 * 128;
      tokens.load(from, lane);
      if (t >= STAGES) mbar_wait(smem0 + EMPTY_AT + stage * 8, (t / STAGES - 1) & 1);
      copy_rope(rows + NOPE_BOXES * BOX, from, lane);
      arrive_when_copied(full);
      const uint32_t tokens_valid = __ballot_sync(~0u, valid(now)) & 0xffff;
      if (lane == 0) st_shared(smem0 + VALID_AT + stage * 16 + warp * 4, tokens_valid);
      now = next;
      next = index(t + 2);
      from = row(now);
      tokens.store(rows, lane);
      __syncwarp();
      if (lane == 0) mbar_arrive(full);
    }
  }
};
