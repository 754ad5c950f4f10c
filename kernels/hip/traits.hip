// Split-KV MLA decode for gfx950, one family of kernels. This file: what an instantiation is, and the geometry of a tile.
//
// A workgroup of 4 waves takes 16 * row_blocks query rows of one sequence and one split of its KV. It walks over tiles of
// `tile` tokens in LDS. Every wave computes the scores of all tokens, transposed (tokens are the rows of the product), so that
// a lane ends up with the probabilities it needs itself as an operand of the second product; each wave owns 128 of the 512
// output dims. `column` = lane % 16 is a query row, `group` = lane / 16 selects tokens 4 * group + 0..3 of each 16.

constexpr int kQkDim = 576, kVDim = 512, kWaveDims = kVDim / kWaves;
constexpr int kMxBlock = 32, kMxBlocks = kQkDim / kMxBlock;  // dims that share one E8M0 scale; blocks of a row

enum KvFormat { kFp8, kMxfp4, kBf16 };

// One instantiation. All members are compile-time constants of the kernel.
struct Traits {
  KvFormat kv;
  int row_blocks;      // 16 query rows each: 1 or 2
  int buffers;         // tiles in LDS: 1 to 3
  int tile;            // tokens: 32, 64, or 128 with fp8_pv
  int waves_per_simd;  // occupancy that the registers must allow
  bool paged;          // KV rows are found through a block table
  bool fp8_pv;         // probabilities and V multiplied as fp8, 128 tokens at once; needs kFp8 and tile 128
  bool direct_cvt;     // V is read as it lies, converted and permuted, instead of by transposing LDS reads; kFp8 only
  bool preload_v;      // V is read into registers before the softmax
  bool setprio;        // waves in matrix products go first
  bool last_arriver;   // the workgroup that finishes last combines the splits: no second launch
};

// Sizes and places in a tile. A tile's rows lie in LDS without gaps, in chunks of 16 bytes as an LDS-DMA load writes them.
// Within a row the lowest bits of the chunk number are exchanged by XOR with `swizzle(row)`, so that the 16 rows which a
// quarter of a wave reads at once lie in different banks (64 banks of 4 bytes).
template <Traits T>
struct Tile {
  static constexpr int kRowBytes = T.kv == kFp8 ? kQkDim : T.kv == kMxfp4 ? kQkDim / 2 : kQkDim * 2;
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kBytes = T.tile * kRowBytes;
  static constexpr int kLoads = kBytes / 1024;  // LDS-DMA instructions, 64 lanes of 16 bytes
  static constexpr int kWaveLoads = (kLoads + kWaves - 1) / kWaves;
  static constexpr int kLeastWaveLoads = kLoads / kWaves;  // of the wave that has fewest
  static constexpr int kBlocks = T.tile / 16;
  static constexpr int kScaleBuffers = T.kv != kMxfp4 ? 0 : T.buffers == 1 ? 1 : 2;
  static_assert(kBytes % 1024 == 0 && T.buffers >= 1 && T.buffers <= 3);
  static_assert(!T.fp8_pv || (T.kv == kFp8 && T.tile == 128), "fp8 PV multiplies 128 tokens at once");
  static_assert(!T.direct_cvt || (T.kv == kFp8 && !T.fp8_pv), "direct conversion reads fp8 and makes bf16");

  DEVICE u32 swizzle(u32 row) {
    if (T.kv == kFp8) return ((row >> 2) ^ (row >> 3 & 2)) & 3;
    if (T.kv == kMxfp4) return ((row >> 3) ^ (row >> 4)) & 1;
    const u32 pair = row >> 1 & 7;
    return (pair << 1 | pair >> 2) & 7;
  }

  // Byte of chunk `chunk` of row `row`.
  DEVICE u32 place(u32 row, u32 chunk) { return row * kRowBytes + (chunk ^ swizzle(row)) * 16; }
};

template <Traits T>
using TileSoftmax = Softmax<Tile<T>::kBlocks, T.fp8_pv ? 6 : 0>;

// Block scales of a tile of mxfp4, twice: for the scores as bytes [token][group][step] of block 4 * step + group, for V as
// numbers [block][token].
template <Traits T>
struct ScaleTile {
  u8 bytes[T.tile][4][8];
  float values[kVDim / kMxBlock][T.tile];
};

// See remainder.hip: pieces of a block of query rows.
struct RemainderTile {
  i32x4 piece[kQkDim / 64][64];
};

template <Traits T>
struct Shared {
  alignas(1024) char tiles[T.buffers][Tile<T>::kBytes];
  RemainderTile remainders[T.kv == kBf16 ? 0 : T.row_blocks];
  ScaleTile<T> scales[Tile<T>::kScaleBuffers];
  u32 ticket;
};

// The tokens of one sequence, its splits, and its query rows (row = token * heads + head, over all tokens of the batch).
struct Work {
  int kv_begin, kv_len, row_begin, rows;
  int tiles_per_split, active_splits;  // splits that hold a tile

  MEMBER Work(const int* qo_indptr, const int* kv_indptr, int sequence, int heads, int num_kv_splits, int tile) {
    kv_begin = kv_indptr[sequence];
    kv_len = kv_indptr[sequence + 1] - kv_begin;
    row_begin = qo_indptr[sequence] * heads;
    rows = qo_indptr[sequence + 1] * heads - row_begin;
    const u32 tiles = (kv_len + tile - 1) / (u32)tile;
    tiles_per_split = (tiles + num_kv_splits - 1) / (u32)num_kv_splits;
    active_splits = tiles ? (tiles + tiles_per_split - 1) / (u32)tiles_per_split : 0;
  }
};
