// Sparse MLA decode over a V32 cache for sm_90a: sizes, arguments, the shared memory of a block and which tokens it works on.
//
// A block serves up to 64 heads of one query token over one split of its index row, in tiles of 64 selected tokens. One warpgroup gathers
// tokens from the cache and widens them to f16 (gather.cuh); two multiply (attend.cuh): the first computes scores and softmax and the left
// half of the output, the second the right half. Splits are merged by a second kernel (merge.cuh).
#pragma once
#include "sparse_ptx.cuh"

constexpr int HEADS = 64, TILE = 64;                     // of a block; tokens
constexpr int NOPE = 512, ROPE = 64, D_QK = NOPE + ROPE, D_V = 512;
constexpr int ROW_BYTES = 656, SCALES_AT = 512, ROPE_AT = 528;   // of a cached token
constexpr int THREADS = 384, WARPS = 4;                  // of a block, of a warpgroup
constexpr int STAGES = 2;
constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

// Registers per thread after the warpgroups have traded: together not more than the 3 * 168 of the launch.
constexpr int LEFT_REGS = 216, RIGHT_REGS = 176, GATHERER_REGS = 112;

// What wgmma reads: boxes of 64 rows (heads or tokens) of 128 bytes, swizzled; eight of f16 NoPE, one of bf16 RoPE.
constexpr int BOX = 64 * 128, NOPE_BOXES = 8, OPERAND_BYTES = 9 * BOX;

struct Args {
  const __nv_bfloat16* q;      // [tokens, heads, 576]
  const uint8_t* cache;
  const int* indices;          // [tokens, topk]
  const int* length;           // [tokens / q_len], or null: topk
  const float* sink;           // [heads], or null
  const uint8_t* zeros;        // [656]: read in place of a token that is not valid
  __nv_bfloat16* out;          // [tokens, heads, 512]
  float* lse;                  // [tokens / q_len, heads, q_len], natural
  uint16_t* part;              // f16 [tokens, heads, splits, 512], normalised; splits > 1 only
  float* part_lse;             // [tokens, heads, splits], base 2; -inf marks an empty split
  long page_bytes;             // from one page to the next
  float sm_scale;
  int tokens, heads, q_len, topk, cache_tokens, page_size, splits, row_blocks;
};

// Offsets in shared memory, bytes.
constexpr int Q_AT = 0, TILES_AT = OPERAND_BYTES;
constexpr int P_AT = TILES_AT + STAGES * OPERAND_BYTES;  // [4 steps of 16 tokens][128 threads][16]: A operands of the output; then [128][16], factors
constexpr int P_STEP = 128 * 16, ROW_SCALE_AT = P_AT + 5 * P_STEP;   // float [64]
constexpr int VALID_AT = ROW_SCALE_AT + HEADS * 4;       // uint32 [STAGES][4]: a bit for each of the 16 tokens that a warp gathered
constexpr int FULL_AT = VALID_AT + STAGES * 16, EMPTY_AT = FULL_AT + STAGES * 8, SMEM_BYTES = EMPTY_AT + STAGES * 8;
static_assert(SMEM_BYTES <= 232448);

// Named barriers: start, end of the multiplying warpgroups, and one each way for every pair of their warps that own the same rows.
constexpr int START_BARRIER = 1, FINISH_BARRIER = 2, READY_BARRIER = 4, FREE_BARRIER = 8;

struct Work {
  int token, first_head, heads, split;                   // heads <= 64
  int length, tile0, tiles;                              // entries of the index row that count; tiles of this split

  __device__ __forceinline__ explicit Work(const Args& a) {
    const unsigned block = blockIdx.x, task = block / (unsigned)a.row_blocks;
    first_head = (block - task * a.row_blocks) * HEADS;
    heads = min(HEADS, a.heads - first_head);
    token = task / (unsigned)a.splits;
    split = task - token * a.splits;
    length = a.length ? min(max(__ldg(a.length + token / a.q_len), 0), a.topk) : a.topk;
    const unsigned all = (length + TILE - 1) / TILE;
    tile0 = all * split / a.splits;
    tiles = all * (split + 1) / a.splits - tile0;
  }
  __device__ __forceinline__ size_t row(const Args& a, int head) const { return (size_t)token * a.heads + first_head + head; }
};

// Where a row's lse stands.
__device__ __forceinline__ size_t lse_place(const Args& a, size_t row) {
  const size_t token = row / a.heads, head = row - token * a.heads;
  return (token / a.q_len * a.heads + head) * a.q_len + token % a.q_len;
}
__device__ __forceinline__ float natural_lse(float lse2, float sum) { return sum == 0.f ? INFINITY : lse2 * LN2; }

// 1 / (1 + e^(sink - lse)), lse in base 2: a sink of -inf gives 1, +inf gives 0, and nothing overflows into NaN.
__device__ __forceinline__ float sink_factor(const Args& a, int head, float lse2) {
  return a.sink ? 1.f / (1.f + exp2_approx(__ldg(a.sink + head) * LOG2E - lse2)) : 1.f;
}
