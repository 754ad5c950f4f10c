// What every split-KV MLA decode kernel of this folder shares: sizes, arguments, and which tokens a block works on.
//
// A block serves 16 query rows (heads, and query tokens after another) of one sequence over one split of its KV. Scores are computed
// transposed, S^T[64 tokens, rows] = K Q^T by wgmma (64 tokens are its M), so that a KV tile goes from the copy engine to the tensor
// cores without a conversion; with 8-bit tiles Q is split exactly into two e4m3 parts, S^T[64, 32] = K [Qhi; Qlo]^T. The output
// O[16, 512] += P V is mma.sync with the query rows as its M of 16; every warp owns 128 of the 512 dims.
#pragma once
#include "ptx.cuh"

constexpr int ROWS = 16;                       // query rows (heads) of a block
constexpr int D_QK = 576, D_V = 512;
constexpr int TILE = 64;                       // tokens
constexpr int MAX_CLUSTER = 16;
constexpr float LOG2E = 1.4426950408889634f;

// What a tile in shared memory holds: the rows of an fp8 cache, of an mxfp4 cache unpacked (each token's values divided by a power of two
// of its own, its base), or of a bf16 cache.
enum class Kv { e4m3, e5m2, bf16 };

struct Args {
  const __nv_bfloat16* q;      // [batch * rows, 576]
  const float* kv_scale;       // [1], fp8 only
  const uint8_t* kv;           // [total_kv, 288], mxfp4 only
  const uint8_t* kv_e8m0;      // [at least total_kv, e8m0_stride], mxfp4 only
  const uint8_t* kv_e8m0_end;  // nothing from there on is read
  const int* kv_indptr;        // [batch + 1]
  const int* block_table;      // paged: [batch, table_stride] physical pages of 2^page_bits tokens
  __nv_bfloat16* out;          // [batch * rows, 512]
  float4* part;                // [blocks, groups, 16, 128] normalised partial outputs, groups > 1 only
  float2* part_ml;             // [blocks, groups, 16] (max in log2 units, sum)
  unsigned* tickets;           // [blocks, MAX_CLUSTER], zero before the first launch and after every launch
  float sm_scale;
  int rows, row_blocks;        // query rows of a sequence (query tokens * heads); blocks of 16 that they make
  int cluster, groups;         // splits of a sequence = cluster * groups
  int e8m0_stride;             // bytes
  int table_stride, page_bits; // paged only
  int uniform_len;             // the length of every sequence, if the host knows that they are equal; else 0
  int uniform_each, uniform_more;   // its tiles / splits, and the rest
  int share, share_inverse;    // units of the output that a block of the cluster sums: ceil(UNITS / cluster); ceil(2^16 / share)
};

struct Work {
  int block, sequence;         // block = sequence * row_blocks + block of rows
  int first_row, rows;         // of q and out; rows <= 16
  int rank, group;             // split = group * cluster + rank
  int row0, len;               // first KV row of the sequence, its length in tokens
  int tile0, tiles;            // tiles of this split

  // What needs no load, then what does.
  __device__ __forceinline__ explicit Work(const Args& a) {
    block = blockIdx.y;
    sequence = a.row_blocks == 1 ? block : (unsigned)block / (unsigned)a.row_blocks;
    const int row_block = block - sequence * a.row_blocks;
    first_row = sequence * a.rows + row_block * ROWS;
    rows = min(ROWS, a.rows - row_block * ROWS);
    rank = blockIdx.x;
    group = blockIdx.z;
  }
  __device__ __forceinline__ void find_tiles(const Args& a) { set_tiles(a, bounds(a)); }
  // First KV row of the sequence and of the next one; loads that are on their way when this returns.
  __device__ __forceinline__ int2 bounds(const Args& a) const { return make_int2(load_now(a.kv_indptr + sequence), load_now(a.kv_indptr + sequence + 1)); }
  // What find_tiles will say if the host is right about the lengths: copies that start at once, and not a cold load later.
  __device__ __forceinline__ void expect_tiles(const Args& a) {
    set_tiles(a, make_int2(sequence * a.uniform_len, (sequence + 1) * a.uniform_len), a.uniform_each, a.uniform_more);
  }
  __device__ __forceinline__ bool same_tokens(const Work& other) const { return row0 == other.row0 && len == other.len; }
  __device__ __forceinline__ void set_tiles(const Args& a, int2 bounds) {
    // 32-bit unsigned: a signed 64-bit division costs hundreds of cycles.
    const unsigned splits = a.cluster * a.groups, all = (unsigned)(bounds.y - bounds.x + TILE - 1) / TILE, each = all / splits;
    set_tiles(a, bounds, each, all - each * splits);
  }
  // Every split has `each` tiles, the first `more` one more.
  __device__ __forceinline__ void set_tiles(const Args& a, int2 bounds, int each, int more) {
    row0 = bounds.x;
    len = bounds.y - bounds.x;
    const int split = group * a.cluster + rank;
    tile0 = split * each + min(split, more);
    tiles = each + (split < more);
  }
};

// Copies that were started for the wrong rows: their bytes are awaited, and the barrier, at which nobody waits yet, is as it was: two phases on.
__device__ __forceinline__ void discard_copies(uint32_t bar) {
  mbar_wait(bar, 0);
  mbar_arrive(bar);
}

// The first tiles, by one thread. The first `early` of them, which nobody waits behind, are started before it is known for sure which they are
// (`uniform`: the host knows all lengths), then the rest of `places`. For a tile: `copy(work, t)` starts its copies, `expect(work, t)` says to its
// barrier `full(t)` how much will come, `load(t)` does both.
template <class Copy, class Expect, class Full, class Load>
__device__ __forceinline__ void start_copies(const Args& a, Work& w, bool uniform, int early, int places, Copy&& copy, Expect&& expect, Full&& full,
                                             Load&& load) {
  const int2 bounds = w.bounds(a);
  int started = 0;
  Work expected(w);
  if (uniform) {
    expected.expect_tiles(a);
    started = min(expected.tiles, early);
#pragma unroll 1
    for (int t = 0; t < started; t++) copy(expected, t);
  }
  w.set_tiles(a, bounds);
#pragma unroll 1
  for (int t = 0; t < started; t++) expect(expected, t);
  if (started && !w.same_tokens(expected)) {
#pragma unroll 1
    for (int t = 0; t < started; t++) discard_copies(full(t));
    started = 0;
  }
#pragma unroll 1
  for (int t = started; t < min(w.tiles, places); t++) load(t);
}
