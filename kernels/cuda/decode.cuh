// What every split-KV MLA decode kernel of this folder shares: sizes, arguments, and which tokens a block works on.
//
// A block serves 16 query rows (16 heads of one query token) over one split of that token's sequence. Scores are computed
// transposed, S^T[64 tokens, 32] = K [Qhi; Qlo]^T by wgmma (64 tokens are its M), so that an 8-bit KV tile goes from the copy
// engine to the tensor cores without a conversion. Q is split exactly into two e4m3 parts. The output O[16, 512] += P V is
// mma.sync with the heads as its M of 16; every warp owns 128 of the 512 dims.
#pragma once
#include "ptx.cuh"

constexpr int ROWS = 16;                       // query rows (heads) of a block
constexpr int D_QK = 576, D_V = 512;
constexpr int TILE = 64;                       // tokens
constexpr int MAX_CLUSTER = 16;
constexpr float LOG2E = 1.4426950408889634f;

struct Args {
  const __nv_bfloat16* q;      // [total_q, heads, 576]
  const float* kv_scale;       // [1], fp8 only
  const uint8_t* kv;           // [total_kv, 288], mxfp4 only
  const uint8_t* kv_e8m0;      // [total_kv, e8m0_stride], mxfp4 only
  const int* kv_indptr;        // [batch + 1]
  __nv_bfloat16* out;          // [total_q, heads, 512]
  float4* part;                // [total_q * heads / 16, groups, 16, 128] unnormalised sums, groups > 1 only
  float2* part_ml;             // [total_q * heads / 16, groups, 16] (max in log2 units, sum)
  unsigned* tickets;           // [total_q * heads / 16, MAX_CLUSTER], zero before the first launch and after every launch
  float sm_scale;
  int q_len, row_blocks;       // query tokens of a sequence; heads / 16
  int cluster, groups;         // splits of a sequence = cluster * groups
  int e8m0_stride;             // bytes
};

struct Work {
  int block;                   // index of these 16 query rows: token * row_blocks + row block
  int split, rank, group;      // split = group * cluster + rank
  int row0, len;               // first KV row of the sequence, its length in tokens
  int tile0, tiles;            // tiles of this split
};

__device__ __forceinline__ Work find_work(const Args& a) {
  Work w;
  const unsigned splits = a.cluster * a.groups;
  w.block = blockIdx.y;
  w.split = blockIdx.z * a.cluster + blockIdx.x;
  w.group = blockIdx.z;
  w.rank = blockIdx.x;
  const unsigned rows = a.q_len * a.row_blocks;          // 32-bit unsigned divisions: signed 64-bit ones cost 100s of cycles
  const int sequence = rows == 1 ? w.block : (unsigned)w.block / rows;
  w.row0 = __ldg(a.kv_indptr + sequence);
  w.len = __ldg(a.kv_indptr + sequence + 1) - w.row0;
  const unsigned all = (unsigned)(w.len + TILE - 1) / TILE;
  w.tile0 = all * w.split / splits;                      // at most 2^25 tiles times 64 splits
  w.tiles = all * (w.split + 1) / splits - w.tile0;
  return w;
}

// Development aid (-DMLA_STAMPS): clocks of block 0 at named points, and per block {SM, start, first KV, loop end, end} in ns.
#ifdef MLA_STAMPS
__device__ long long stamps[96], block_times[4096][5];
__device__ __forceinline__ void stamp(int i) {
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && (threadIdx.x & 127) == 0) stamps[i + 24 * (threadIdx.x >> 7)] = clock64();
  const int slot = i == 0 ? 1 : i == 4 ? 2 : i == 8 ? 3 : i == 13 ? 4 : 0, block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (slot && threadIdx.x == 0 && block < 4096) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(block_times[block][slot]));
    unsigned sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    block_times[block][0] = sm;
  }
}
#define STAMP(i) stamp(i)
#else
#define STAMP(i)
#endif
