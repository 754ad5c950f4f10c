// The kernels: one split of one sequence for 16 * row_blocks query rows, and a combine of its own for those that leave it to a
// second launch.

template <Traits T>
struct Decoder {
  using Geometry = Tile<T>;
  using Query = typename QueryOf<T.kv>::type;
  Shared<T> LDS* shared;
  Lane at;
  Loader<T> loader;
  ScaleLoader<T> scales;
  int kv_begin, tokens, tiles;
  const __bf16* q;  // first row of the sequence
  int first_row, last_row;
  Keys<T> keys;
  Values<T> values;
  Query query[T.row_blocks];
  bool wide;  // see Fp8Query
  TileSoftmax<T> softmax[T.row_blocks];
  Accumulator sums[T.row_blocks];

  // Buffers go round; a remainder by 3 would cost more.
  MEMBER static int next_buffer(int buffer) { return buffer + 1 == T.buffers ? 0 : buffer + 1; }

  MEMBER void load(int tile, int buffer) {
    if (tile < tiles) loader.load(tile, shared->tiles[buffer]);
  }
  MEMBER ScaleTile<T> LDS* scale_tile(int tile) {
    if constexpr (T.kv == kMxfp4) return &shared->scales[tile % Geometry::kScaleBuffers];
    return nullptr;
  }

  MEMBER void start() {
    scales.load(loader, kv_begin, 0);
    load(0, 0);
    if (T.buffers == 3) load(1, 1);
  }

  MEMBER const __bf16* query_row(int r) const { return q + (u64)min(first_row + 16 * r + at.column, last_row) * kQkDim; }

  MEMBER void load_query(float to_log2) {
    wide = false;
#pragma unroll
    for (int r = 0; r < T.row_blocks; ++r) {
      query[r].load(query_row(r), at.group);
      softmax[r].to_log2 = to_log2 * query[r].scale;
      wide |= query[r].wide;
    }
    if constexpr (T.kv != kBf16) {
      if (!wide) return;
#pragma unroll
      for (int r = 0; r < T.row_blocks; ++r) store_remainders(&shared->remainders[r], query_row(r), query[r], at);
    }
  }

  MEMBER void run() {
    for (int tile = 0, buffer = 0, free = T.buffers - 1; tile < tiles; ++tile, buffer = next_buffer(buffer), free = next_buffer(free)) {
      if (T.buffers == 3 && tile + 1 < tiles)
        wait_loads<Geometry::kLeastWaveLoads>();
      else
        wait_loads<0>();
      scales.store(scale_tile(tile));
      barrier();
      if (T.buffers > 1) load_ahead(tile, free);
      attend(tile, shared->tiles[buffer]);
      if (T.buffers == 1) {
        barrier();
        load_ahead(tile, free);
      }
    }
  }

  // After the barrier nobody reads the buffer of the tile before `tile` any more: it is free.
  MEMBER void load_ahead(int tile, int free) {
    if (tile + 1 < tiles) scales.load(loader, kv_begin, tile + 1);
    load(tile + (T.buffers == 3 ? 2 : 1), free);
  }

  MEMBER void attend(int tile, LDS const char* kv) {
    const ScaleTile<T> LDS* scale = scale_tile(tile);
    f32x4 p[T.row_blocks][Geometry::kBlocks] = {};
    if (T.setprio) __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int b = 0; b < Geometry::kBlocks; ++b) {
      f32x4 block[T.row_blocks] = {};
      keys.multiply(kv, scale, b, query, block);
#pragma unroll
      for (int r = 0; r < T.row_blocks; ++r) p[r][b] = block[r];
    }
    if constexpr (T.kv != kBf16)
      if (wide) add_remainders<T>(keys, kv, scale, shared->remainders, at.lane, p);
    if (T.setprio) __builtin_amdgcn_s_setprio(0);
    Preloaded<T> loaded;
    loaded.read(values, kv);
    const int count = tokens - tile * T.tile;
#pragma unroll
    for (int r = 0; r < T.row_blocks; ++r) {
      if (count < T.tile) mask_tail(p[r], at.group, count);
      softmax[r].apply(p[r], sums[r]);
    }
    if (T.setprio) __builtin_amdgcn_s_setprio(1);
    accumulate<T>(values, loaded, kv, scale, at, p, sums);
    if (T.setprio) __builtin_amdgcn_s_setprio(0);
  }
};

// Grid: sequences x num_kv_splits x groups of 16 * row_blocks query rows.
//   q            bf16 [total rows, 576], row = token * heads + head
//   kv           [total_kv, row bytes], or with paging [pages, page size, row bytes]
//   kv_scale     fp8: f32 [1]; mxfp4: E8M0 [total_kv, scale_stride]; bf16: unused
//   block_table  paged: int32 [sequences, table_stride], physical page of each logical one; page size 2^page_bits
//   qo_indptr, kv_indptr   int32 [sequences + 1], in tokens
//   out, partial, lse      see Destination
//   tickets      last_arriver: u32 [sequences, row groups], zero
template <Traits T>
__global__ void __launch_bounds__(kThreads, T.waves_per_simd)
    mla_decode(const __bf16* q, const u8* kv, const u8* kv_scale, const int* block_table, const int* qo_indptr, const int* kv_indptr, __bf16* out,
               __bf16* partial, float* lse, u32* tickets, int heads, int num_kv_splits, int scale_stride, int table_stride, int page_bits,
               float sm_scale) {
  __shared__ Shared<T> memory;
  Shared<T> LDS* shared = (Shared<T> LDS*)&memory;
  constexpr int kRows = 16 * T.row_blocks;
  const Lane at;
  const int sequence = blockIdx.x, split = blockIdx.y, first_row = blockIdx.z * kRows;
  const Work work(qo_indptr, kv_indptr, sequence, heads, num_kv_splits, T.tile);
  if (first_row >= work.rows) return;
  if (split >= work.active_splits) {
    if (split == 0) store_zeros<kVDim>(out + (u64)(work.row_begin + first_row) * kVDim, min(kRows, work.rows - first_row));
    return;
  }
  const int first = split * work.tiles_per_split * T.tile, end = min(first + work.tiles_per_split * T.tile, work.kv_len);

  const int* table = block_table + (T.paged ? (u64)sequence * table_stride : 0);
  Decoder<T> decoder = {shared, at, Loader<T>(at, kv, table, work, first, end, page_bits),
                        ScaleLoader<T>{kv_scale, scale_stride, (int)threadIdx.x % T.tile, (int)threadIdx.x / T.tile}, work.kv_begin, end - first,
                        (end - first + T.tile - 1) / T.tile, q + (u64)work.row_begin * kQkDim, first_row, work.rows - 1, Keys<T>(at), Values<T>(at)};
  decoder.start();
  const float kv_unit = T.kv == kFp8 ? *(const float*)kv_scale : 1.0f;
  decoder.load_query(sm_scale * kLog2E * kv_unit);
  decoder.run();

  const Destination<kVDim> to = {out, partial, lse, num_kv_splits, split, work.active_splits == 1};
#pragma unroll
  for (int r = 0; r < T.row_blocks; ++r) {
    const int row = first_row + 16 * r + at.column;
    if (row < work.rows) store_result<T>(to, work.row_begin + row, decoder.sums[r], decoder.softmax[r], kv_unit, at);
  }
  if (T.last_arriver && !to.whole) {
    if (!arrives_last(tickets + sequence * gridDim.z + blockIdx.z, work.active_splits, &shared->ticket)) return;
    for (int row = at.wave; row < min(kRows, work.rows - first_row); row += kWaves)
      combine_row<kVDim>(out, partial, lse, work.row_begin + first_row + row, num_kv_splits, work.active_splits, at.lane);
  }
}

// Second launch. Grid: sequences x groups of 4 rows, a wave each. Sequences that one split held are complete already.
__global__ void __launch_bounds__(kThreads) mla_combine(__bf16* out, const __bf16* partial, const float* lse, const int* qo_indptr, const int* kv_indptr,
                                                        int heads, int num_kv_splits, int tile) {
  const Lane at;
  const Work work(qo_indptr, kv_indptr, blockIdx.x, heads, num_kv_splits, tile);
  const int row = blockIdx.y * kWaves + at.wave;
  if (work.active_splits > 1 && row < work.rows) combine_row<kVDim>(out, partial, lse, work.row_begin + row, num_kv_splits, work.active_splits, at.lane);
}
