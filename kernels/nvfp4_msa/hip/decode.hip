// The kernel: one split of the blocks of one query row, for the query heads of one KV head.

template <Traits T>
struct Decoder {
  static constexpr int kAhead = T.buffers - 1;  // blocks on their way while one is computed
  WaveShared<T> LDS* shared;
  Lane at;
  Loader loader;
  Slots slots;
  Share share;
  int visible;  // tokens of the row's own block that the row sees, counted from this wave's first
  Keys keys;
  Values<T> values;
  Softmax<2, 0> softmax;
  Accumulator sums;

  MEMBER void load(int number, WaveBlock LDS* to) { loader.load(slots.page_of(share.first + number), to); }

  MEMBER void start() {
#pragma unroll
    for (int number = 0; number < kAhead; ++number)
      if (number < share.count) load(number, &shared->ring[number]);
  }

  // The block before the one that is computed is done with: its place is free.
  MEMBER void run(const Query& query) {
    WaveBlock LDS* block = &shared->ring[0];
    WaveBlock LDS* free = &shared->ring[kAhead];
    for (int number = 0; number < share.count; ++number) {
      if (number + kAhead < share.count) {
        wait_all_but<kAhead - 1>();
        load(number + kAhead, free);
      } else {
        wait_all_but(share.count - 1 - number);
      }
      const bool own = slots.own >> (share.first + number) & 1;
      attend(block, query, own ? visible : kWaveTokens);
      free = block;
      block = block == &shared->ring[kAhead] ? &shared->ring[0] : block + 1;
    }
  }

  // Returns when all blocks but the last `kBlocks` that were asked for have arrived, and everything that was read of the block
  // before, whose place the next load takes.
  template <int kBlocks>
  MEMBER static void wait_all_but() {
    asm volatile("s_waitcnt vmcnt(%0) lgkmcnt(0)" ::"n"(kBlocks * Loader::kLoads) : "memory");
  }
  MEMBER static void wait_all_but(int blocks) {
    if (kAhead > 2 && blocks == 2)
      wait_all_but<2>();
    else if (kAhead > 1 && blocks == 1)
      wait_all_but<1>();
    else
      wait_all_but<0>();
  }

  MEMBER void attend(const WaveBlock LDS* block, const Query& query, int seen) {
    values.prepare(block, &shared->value_scales, seen);
    f32x4 p[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) p[half] = keys.multiply(block, half, query);
    if (seen < kWaveTokens) mask_tail(p, at.group, seen);
    softmax.apply(p, sums);
    values.accumulate(block, &shared->value_scales, p, sums);
  }
};

// Scores in base 2 of a unit of the product. The limit keeps every score finite; at it, even the smallest difference of two
// scores decides between their tokens.
DEVICE float unit_score(float sm_scale, float k_scale, float q_scale) { return fminf(sm_scale * kLog2E * k_scale * q_scale, 0x1p93f); }

// Grid: rows x num_kv_splits x KV heads; rows as in Row, up to a multiple of q_len * num_xcds.
//   q            bf16 [rows, kv_heads * heads, 128]; `heads` query heads, 1 to 16, share a KV head
//   cache        u8 [pages, kv_heads * kHeadBytes], see traits.hip; k_scale, v_scale: f32 [1]
//   topk         i32 [kv_heads, topk_rows, num_slots], blocks of a row's request; num_slots 1 to 64. Valid are those up to the
//                block of the row's own position
//   block_table  i32 [requests, table_stride], page of each block
//   seq_lens     i32 [requests], tokens including the request's q_len query rows; rows from requests * q_len on are padding
//   out, partial, lse   see Destination, a row for each query head
//   tickets      u32 [rows, kv_heads], zero
template <Traits T>
__global__ void __launch_bounds__(kThreads, T.waves_per_simd)
    nvfp4_decode(const __bf16* q, const u8* cache, const int* topk, const int* block_table, const int* seq_lens, const float* k_scale,
                 const float* v_scale, __bf16* out, __bf16* partial, float* lse, u32* tickets, int rows, int requests, int q_len, int heads,
                 int num_slots, int topk_rows, int table_stride, int num_kv_splits, int num_xcds, float sm_scale) {
  __shared__ Shared<T> memory;
  Shared<T> LDS* shared = (Shared<T> LDS*)&memory;
  const Lane at;
  const Row row(blockIdx.x, num_xcds, q_len);
  const int split = blockIdx.y, kv_head = blockIdx.z, kv_heads = gridDim.z;
  if (row.index >= (u32)rows) return;
  const u32 first_head = (row.index * kv_heads + kv_head) * heads;  // among the query heads of all rows
  // Everything that can be asked for at once is asked for before anything is waited for, and before the blocks.
  const RawQuery raw(q + (u64)(first_head + min(at.column, heads - 1)) * kHeadDim, at.group);
  const int listed = topk[((u64)kv_head * topk_rows + row.index) * num_slots + min(at.lane, num_slots - 1)];
  const float k_unit = *k_scale, v_unit = *v_scale;
  const int position = row.position(requests, q_len, seq_lens);
  if (position < 0) {
    if (split == 0) store_zeros<kHeadDim>(out + (u64)first_head * kHeadDim, heads);
    return;
  }
  const Slots slots(listed, num_slots, block_table + (u64)row.request * table_stride, position, at.lane);
  const Share share(slots.count, split, num_kv_splits);
  if (share.count <= 0) {
    if (split == 0) store_zeros<kHeadDim>(out + (u64)first_head * kHeadDim, heads);
    return;
  }

  WaveShared<T> LDS* own = &shared->waves[at.wave];
  Decoder<T> decoder = {own, at, Loader(cache, kv_heads, kv_head, at), slots, share, position % kBlockTokens + 1 - at.wave * kWaveTokens, Keys(at), Values<T>(at)};
  decoder.start();
  const Query query(raw);
  decoder.softmax.to_log2 = unit_score(sm_scale, k_unit, query.scale);
  decoder.run(query);

  store_sums(&own->sums, decoder.sums, decoder.softmax, at);
  barrier();
  const Destination<kHeadDim> to = {out, partial, lse, num_kv_splits, split, share.active_splits == 1};
  merge_waves<T>(shared, to, at.column < heads ? (int)first_head + at.column : -1, v_unit, at);
  if (to.whole || !arrives_last(tickets + row.index * kv_heads + kv_head, share.active_splits, &shared->ticket)) return;
  for (int head = at.wave; head < heads; head += kWaves)
    combine_row<kHeadDim>(out, partial, lse, first_head + head, num_kv_splits, share.active_splits, at.lane);
}
