// What fp8 leaves of a query row, as a second fp8 number per element: together the two are the bf16 row, since a bf16 number has
// 8 significant bits and each e4m3 number carries 4. Rows beyond the range of e4m3 get such scores: there the logits are so far
// apart that a rounded q would decide between tokens. All others do without, like any fp8 kernel.

constexpr int kSixteenth = 0x7b7b7b7b;  // E8M0 of 1/16, by which remainders are smaller

// A pair of bf16 numbers minus `taken`; exact.
DEVICE u32 difference(u32 pair, f32x2 taken) {
  const float low = __builtin_bit_cast(float, pair << 16) - taken[0], high = __builtin_bit_cast(float, pair & 0xffff0000) - taken[1];
  return __builtin_bit_cast(u32, __builtin_convertvector(f32x2{low, high}, bf16x2));
}

DEVICE int remainder_of(u32 low_pair, u32 high_pair, int rounded, float scale) {
  const u32 low = difference(low_pair, __builtin_amdgcn_cvt_scalef32_pk_f32_fp8(rounded, scale, false));
  const u32 high = difference(high_pair, __builtin_amdgcn_cvt_scalef32_pk_f32_fp8(rounded, scale, true));
  return fp8_of(low, high, scale / 16);
}

// Writes the remainders of a block of rows, which a lane holds as Fp8Query does; each wave a quarter of the pieces.
DEVICE void store_remainders(RemainderTile LDS* to, const __bf16* row, const Fp8Query& query, const Lane& at) {
#pragma unroll
  for (int j = 0; j < Fp8Query::kPieces; ++j) {
    if (j % kWaves != at.wave) continue;
    i32x4 words;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const i32x2 raw = *(const i32x2*)(row + 64 * j + 16 * at.group + 4 * word);
      words[word] = remainder_of(raw[0], raw[1], query.piece[j][word], query.scale);
    }
    to->piece[j][at.lane] = words;
  }
}

// Adds the products with the remainders to the scores of a tile.
template <Traits T>
DEVICE void add_remainders(const Keys<T>& keys, LDS const char* tile, const ScaleTile<T> LDS* scales, const RemainderTile LDS* rest, int lane,
                           f32x4 (*scores)[Tile<T>::kBlocks]) {
#pragma unroll 1
  for (int step = 0; step < 5; ++step)
#pragma unroll
    for (int r = 0; r < T.row_blocks; ++r) {
      const i32x4 zero = {0, 0, 0, 0};
      const i32x8 q = joined(rest[r].piece[2 * step][lane], step < 4 ? rest[r].piece[2 * step + 1][lane] : zero);
#pragma unroll
      for (int b = 0; b < Tile<T>::kBlocks; ++b)
        scores[r][b] = scaled_product<Keys<T>::kFormat>(keys.operand(tile, b, step), q, scores[r][b], keys.scale(scales, b, step), kSixteenth);
    }
}
