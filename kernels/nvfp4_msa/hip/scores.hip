// Scores of 16 tokens, transposed: A = the tokens, B = the query heads. Lane: tokens 4 * group + 0..3, head `column`.

// Two E2M1 numbers, byte `pair` of a word; the builtin wants a literal.
DEVICE f16x2 f16_pair(u32 word, int pair) {
  switch (pair) {
    case 0: return __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(word, 1.0f, 0);
    case 1: return __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(word, 1.0f, 1);
    case 2: return __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(word, 1.0f, 2);
    default: return __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(word, 1.0f, 3);
  }
}

// Eight E2M1 numbers times the four pairs of scales that scale_pair(0..3) gives.
template <typename Scales>
DEVICE f16x8 scaled_f16(u32 word, const Scales& scale_pair) {
  f16x8 all;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const f16x2 two = f16_pair(word, pair) * scale_pair(pair);
    all[2 * pair] = two[0];
    all[2 * pair + 1] = two[1];
  }
  return all;
}

struct Keys {
  u32 place, scale_place;

  MEMBER explicit Keys(const Lane& at) : place(WaveBlock::place(at.column, at.group)), scale_place(at.column * kScales + at.group * 2) {}

  // Scores of tokens 16 * half + 0..15 of the wave's 32.
  MEMBER f32x4 multiply(const WaveBlock LDS* block, int half, const Query& query) const {
    // 16 tokens on, the swizzle differs in bit 1 of the chunk.
    const i32x4 dims = *(const i32x4 LDS*)(block->k + half * 1024 + (place ^ half * 32));
    const uint16_t both = *(const uint16_t LDS*)((const char LDS*)block->k_scales + half * 16 * kScales + scale_place);
    const f16x2 scales = __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(both, 1.0f, false);
    f32x4 sum = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const _Float16 scale = scales[j / 2];
      const f16x8 keys = scaled_f16(dims[j], [&](int) { return f16x2{scale, scale}; });
      sum = __builtin_amdgcn_mfma_f32_16x16x32_f16(keys, query.step[j], sum, 0, 0, 0);
    }
    return sum;
  }
};
