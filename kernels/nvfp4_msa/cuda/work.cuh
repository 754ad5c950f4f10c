// What the NVFP4 decode kernel shares: sizes, arguments, and which pages a block works on.
//
// A cluster serves one (row, KV head), a block one split of its valid slots. Its warps form teams of four, which take its pages in turn; warp w
// of a team takes tokens 32 w to 32 w + 31 of each. Every warp has a ring of copies, a softmax and an output of its own: warps meet only at
// the end. Query heads are rows of the products or, where there are at most eight, columns (attend_wide.cuh, attend_narrow.cuh).
#pragma once
#include "elect.cuh"

constexpr int HEAD_DIM = 128;
constexpr int OCTET = 8;                       // neighbouring dims: 16 bytes in f16 or bf16
constexpr int ROW_OCTETS = HEAD_DIM / OCTET;
constexpr int PAGE = 128, TILE = 32;           // tokens; a tile is a warp's share of a page
constexpr int TEAM = PAGE / TILE;              // warps
constexpr int MAX_TOPK = 64, MAX_SPLITS = 8;
constexpr float LOG2E = 1.4426950408889634f;
// Sections of a page in units of 64 bytes, a token's codes, for each KV head: K data from 0, K scales, then the same of V.
constexpr int UNIT = 64, K_SCALES = 128, PLANE = 144;
constexpr int SCALE_ROW = TILE * 8;            // bytes: the scales of a tile

struct Args {
  const __nv_bfloat16* q;      // [rows, kv_heads * group, 128]
  const uint8_t* cache;        // pages of kv_heads * 18432 bytes
  const int* topk;             // [kv_heads, topk_rows, slots]
  const int* block_table;      // [requests, table_stride]
  const int* seq_lens;         // [requests]
  const float* k_scale;        // [1]
  const float* v_scale;        // [1]
  __nv_bfloat16* out;          // as q
  float sm_scale;
  uint32_t q_len_inverse;      // (2^32 - 1) / q_len, rounded down
  int rows, requests, q_len, kv_heads, group;
  int topk_rows, slots, table_stride;
  int split_bits;              // a cluster has 1 << split_bits blocks
};

// What a block works on. The constructor waits for nothing that it loads, so that other first loads can go out with these.
struct Work {
  int pair, split, row, kv_head, request;
  int length;                  // of the request's sequence, in lanes below the number of slots; 0 for a padding row
  int table;                   // the request's row of the block table, as an index
  int block[2];                // what the row lists in slots `lane` and `lane` + 32, -1 behind the last

  // A grid has blocks (split, KV head, row).
  __device__ __forceinline__ Work(const Args& a, int tid) {
    const int lane = tid & 31;
    split = (int)blockIdx.x;
    kv_head = (int)blockIdx.y;
    row = (int)blockIdx.z;
    pair = row * a.kv_heads + kv_head;
    request = (int)__umulhi((uint32_t)row + 1, a.q_len_inverse);   // row / q_len, for rows + 1 < 2^32 / q_len
    table = request * a.table_stride;
    const int list = (kv_head * a.topk_rows + row) * a.slots;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int slot = h * 32 + lane;
      block[h] = slot < a.slots ? load_now(a.topk + list + slot) : -1;
    }
    // Where all lanes load it the compiler wants it in a uniform register, and waits for it here.
    length = request < a.requests && lane < a.slots ? load_now(a.seq_lens + request) : 0;
    if (request < a.requests) prefetch_table(a, tid);
  }

  // Brings the request's row of the block table, 32 entries a thread, into the L2 while the list of slots is on its way.
  __device__ __forceinline__ void prefetch_table(const Args& a, int tid) const {
    if (tid * 32 < a.table_stride) prefetch_l2(a.block_table + table + tid * 32);
  }

  // Of the row in its sequence, in the lanes that have its length; negative: it sees nothing.
  __device__ __forceinline__ int pos(const Args& a) const { return length + (row - request * a.q_len) - a.q_len; }

  // Writes the pages of the row's valid slots to `pages`, one list for each warp; returns their number. ~page: the row's own block,
  // where later keys are hidden.
  __device__ __forceinline__ int list_pages(const Args& a, int* pages, int lane) const {
    int page[2];
    unsigned valid[2];
    const int own = pos(a) >> 7;               // negative if the position is
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const bool sees = block[h] >= 0 && block[h] <= own;
      valid[h] = __ballot_sync(~0u, sees);
      page[h] = sees ? load_now(a.block_table + table + block[h]) : 0;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int place = (h ? __popc(valid[0]) : 0) + __popc(valid[h] & ((1u << lane) - 1));
      if (valid[h] >> lane & 1) pages[place] = block[h] == own ? ~page[h] : page[h];
    }
    __syncwarp();
    return __popc(valid[0]) + __popc(valid[1]);
  }
};

// The valid slots of a split: neighbours, as many as any other split has or one more or less.
struct Share {
  int first, tiles;
  __device__ __forceinline__ Share(int count, int split, int split_bits) {
    first = count * split >> split_bits;
    tiles = (count * (split + 1) >> split_bits) - first;
  }
};
