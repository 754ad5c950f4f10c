// Block scales of mxfp4 into LDS. Rows of the scale tensor may have any stride, so they are loaded byte by byte, a tile ahead.

// Thread t serves token t % tile and every kStep-th block. The two blocks that step 4 of the scores has beyond the row are
// worth 1.
template <Traits T>
struct ScaleLoader {
  static constexpr bool kUsed = T.kv == kMxfp4;
  static constexpr int kStep = kThreads / T.tile, kBytes = kUsed ? (kMxBlocks + 2 + kStep - 1) / kStep : 1;
  static constexpr u8 kScaleOfOne = 127;
  const u8* base;
  int stride, token, first_block;
  u8 byte[kBytes];

  MEMBER int block(int i) const { return first_block + i * kStep; }
  // Whether all blocks that the threads take in turn i, or this thread's, lie below `end`.
  MEMBER bool below(int i, int end) const { return (i + 1) * kStep <= end || block(i) < end; }

  MEMBER void load(const Loader<T>& rows, int kv_begin, int tile) {
    if constexpr (kUsed) {
      const int logical = min(rows.first_token + tile * T.tile + token, rows.last_token);
      u32 row = kv_begin + logical;
      if (T.paged) row = ((u32)rows.table[logical >> rows.page_bits] << rows.page_bits) + (logical & ((1 << rows.page_bits) - 1));
      const u8* from = base + (u64)row * stride + first_block;
#pragma unroll
      for (int i = 0; i < kBytes; ++i) byte[i] = below(i, kMxBlocks) ? from[i * kStep] : kScaleOfOne;
    }
  }

  MEMBER void store(ScaleTile<T> LDS* to) const {
    if constexpr (kUsed) {
#pragma unroll
      for (int i = 0; i < kBytes; ++i) {
        if (below(i, kMxBlocks + 2)) to->bytes[token][block(i) % 4][block(i) / 4] = byte[i];
        if (below(i, kVDim / kMxBlock)) to->values[block(i)][token] = __builtin_bit_cast(float, (u32)byte[i] << 23);
      }
    }
  }
};
