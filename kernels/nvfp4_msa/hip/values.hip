// V as operand A (rows = 16 output dims) of the second product, probabilities as operand B: o^T += V^T * p^T over 32 tokens.

// Scales of V into LDS as f16, in the order in which the product needs them: every lane needs them all. Those of tokens from
// `visible` on become zero: behind the end of a sequence a page may hold anything, and 0 * NaN is NaN.
template <bool kSwizzled>
struct ScaleWriter;

// A lane has one scale of 4 consecutive tokens.
template <>
struct ScaleWriter<true> {
  int first_token, place;

  MEMBER explicit ScaleWriter(const Lane& at) {
    const int quad = at.lane / 8, scale = at.lane % 8;
    first_token = quad * 4;
    place = scale * 64 + quad % 4 * 16 + quad / 4 * 8;
  }
  MEMBER u32 masked(u32 word, int visible) const {
    const int count = visible - first_token;
    return count >= 4 ? word : count <= 0 ? 0 : word & ~0u >> (32 - 8 * count);
  }
  MEMBER void write(ValueScales LDS* to, f16x2 low, f16x2 high) const {
    *(f16x4 LDS*)((char LDS*)to + place) = __builtin_shufflevector(low, high, 0, 1, 2, 3);
  }
};

// A lane has 4 scales of one token.
template <>
struct ScaleWriter<false> {
  int token, place;

  MEMBER explicit ScaleWriter(const Lane& at) {
    token = at.lane / 2;
    place = at.lane % 2 * 256 + token % 16 / 4 * 16 + token / 16 * 8 + token % 4 * 2;
  }
  MEMBER u32 masked(u32 word, int visible) const { return token < visible ? word : 0; }
  MEMBER void write(ValueScales LDS* to, f16x2 low, f16x2 high) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) *(_Float16 LDS*)((char LDS*)to + place + 64 * i) = i < 2 ? low[i] : high[i - 2];
  }
};

template <Traits T>
struct Values {
  Lane at;
  ScaleWriter<T.swizzled> writer;
  u32 place[4];  // by 32 dims

  MEMBER explicit Values(const Lane& at) : at(at), writer(at) {
    const u32 token = token_of(at.group, at.column % 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) place[i] = WaveBlock::place(token, i) + at.column / 8 * 8;
  }

  MEMBER void prepare(const WaveBlock LDS* block, ValueScales LDS* scales, int visible) const {
    u32 word = block->v_scales[at.lane];
    if (visible < kWaveTokens) word = writer.masked(word, visible);
    writer.write(scales, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(word, 1.0f, false), __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(word, 1.0f, true));
  }

  // Adds the products, and the sums of the probabilities as a product with ones.
  MEMBER void accumulate(const WaveBlock LDS* block, const ValueScales LDS* scales, const f32x4 (&p)[2], Accumulator& sums) const {
    const f16x8 ones = {1, 1, 1, 1, 1, 1, 1, 1};
    const f16x8 weights = __builtin_shufflevector(__builtin_convertvector(p[0], f16x4), __builtin_convertvector(p[1], f16x4), 0, 1, 2, 3, 4, 5, 6, 7);
    sums.total = __builtin_amdgcn_mfma_f32_16x16x32_f16(ones, weights, sums.total, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // 16 lanes read 8 tokens of 32 dims, and each receives two dims.
      const i32x2 dims = __builtin_amdgcn_ds_read_tr4_b64_v2i32((i32x2 LDS*)(block->v + place[i]));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int d = 2 * i + half;
        const f16x8 scale = scales->of[d][at.group];
        const f16x8 v = scaled_f16(dims[half], [&](int pair) { return f16x2{scale[2 * pair], scale[2 * pair + 1]}; });
        sums.values[d] = __builtin_amdgcn_mfma_f32_16x16x32_f16(v, weights, sums.values[d], 0, 0, 0);
      }
    }
  }
};
