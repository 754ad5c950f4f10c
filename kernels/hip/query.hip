// Query rows as operands of the score product, converted from bf16 in registers.

constexpr u32 kLargestFp8 = 0x43e0;  // 448 in bf16

// The largest magnitude of a lane's bf16 numbers, as bits.
DEVICE u32 largest_bits(u32 largest, u32 pair) {
  const u16x2 magnitude = __builtin_bit_cast(u16x2, pair & 0x7fff7fff);
  return __builtin_bit_cast(u32, __builtin_elementwise_max(__builtin_bit_cast(u16x2, largest), magnitude));
}

// Power of two that takes a row with the largest magnitude `bits` (of bf16) into [128, 256): e4m3 ends at 448, and the more
// of a row lies above its smallest normal number the better.
DEVICE float row_scale(u32 bits) {
  const int exponent = bits >> 7;
  return __builtin_bit_cast(float, max(exponent ? exponent - 7 : 127, 1) << 23);
}

DEVICE int fp8_of(u32 low_pair, u32 high_pair, float scale) {
  i16x2 word = {0, 0};
  word = __builtin_amdgcn_cvt_scalef32_pk_fp8_bf16(word, __builtin_bit_cast(bf16x2, low_pair), scale, false);
  word = __builtin_amdgcn_cvt_scalef32_pk_fp8_bf16(word, __builtin_bit_cast(bf16x2, high_pair), scale, true);
  return __builtin_bit_cast(int, word);
}

// One block of 16 rows in fp8. A lane holds row `column`, dims 64 * j + 16 * group + 0..15 for j = 0..8: pairs of these are the
// two chunks of 16 that the scaled product 16x16x128 takes from a lane, for either operand.
struct Fp8Query {
  static constexpr int kPieces = kQkDim / 64;
  i32x4 piece[kPieces];
  float scale;  // row = piece * scale
  bool wide;    // some row of the block has numbers that e4m3 cannot hold without the scale

  MEMBER void load(const __bf16* row, int group) {
    i32x4 raw[kPieces][2];
    u32 largest = 0;
#pragma unroll
    for (int j = 0; j < kPieces; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) raw[j][half] = *(const i32x4*)(row + 64 * j + 16 * group + 8 * half);
#pragma unroll
    for (int j = 0; j < kPieces; ++j)
#pragma unroll
      for (int word = 0; word < 8; ++word) largest = largest_bits(largest, raw[j][word / 4][word % 4]);
    largest = max(largest & 0xffff, largest >> 16);
    largest = max(largest, __shfl_xor(largest, 16));
    largest = max(largest, __shfl_xor(largest, 32));
    scale = row_scale(largest);
    wide = __builtin_amdgcn_ballot_w64(largest > kLargestFp8) != 0;
#pragma unroll
    for (int j = 0; j < kPieces; ++j)
#pragma unroll
      for (int word = 0; word < 4; ++word)
        piece[j][word] = fp8_of(raw[j][word / 2][word % 2 * 2], raw[j][word / 2][word % 2 * 2 + 1], scale);
  }
};

// One block of 16 rows as they are. A lane holds dims 32 * j + 8 * group + 0..7.
struct Bf16Query {
  static constexpr int kPieces = kQkDim / 32;
  bf16x8 piece[kPieces];
  static constexpr float scale = 1;
  static constexpr bool wide = false;

  MEMBER void load(const __bf16* row, int group) {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) piece[j] = *(const bf16x8*)(row + 32 * j + 8 * group);
  }
};

template <KvFormat kKv>
struct QueryOf {
  typedef Fp8Query type;
};
template <>
struct QueryOf<kBf16> {
  typedef Bf16Query type;
};
