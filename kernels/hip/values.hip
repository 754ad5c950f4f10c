// V of a tile as operand A (rows = 16 output dims) of the second product, probabilities as operand B: o^T += V^T * p^T.
// Step k of the product covers 32 tokens; its 8 tokens of a lane are those whose scores the lane has computed:
// 4 * group + 0..3 and 16 + 4 * group + 0..3. A read covers kDimBlocks blocks of 16 dims.

// Two fp8 numbers of a word as bf16; the builtin wants a literal.
DEVICE bf16x2 bf16_pair(u32 word, bool high) {
  return high ? __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(word, 1.0f, true) : __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(word, 1.0f, false);
}

template <Traits T>
struct Values;

// fp8 through transposing reads: 16 lanes read 8 tokens of 16 dims, and each receives one dim.
template <Traits T>
  requires(T.kv == kFp8 && !T.direct_cvt)
struct Values<T> {
  static constexpr int kReads = 8, kDimBlocks = 1;
  typedef i32x2 Raw;
  u32 place[4];  // by the lowest two bits of the dim block, which the swizzle covers

  MEMBER Values(const Lane& at) {
    const u32 token = token_of(at.group, at.column / 2);
#pragma unroll
    for (int d = 0; d < 4; ++d) place[d] = Tile<T>::place(token, 8 * at.wave + d) + at.column % 2 * 8;
  }
  MEMBER Raw read(LDS const char* tile, int step, int d) const {
    return __builtin_amdgcn_ds_read_tr8_b64_v2i32((LDS i32x2*)(tile + place[d % 4] + d / 4 * 64 + step * 32 * kQkDim));
  }
  MEMBER static bf16x8 operand(const Raw& raw, int) {
    bf16x8 all;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const bf16x2 two = bf16_pair(raw[pair / 2], pair % 2);
      all[2 * pair] = two[0];
      all[2 * pair + 1] = two[1];
    }
    return all;
  }
  MEMBER static int dim(int d, int group) { return 16 * d + 4 * group; }
  static constexpr int kDimStep = 1;  // from one element of Accumulator::values[d] to the next
};

// fp8 without them: a lane reads 4 dims of each of its tokens, converts pairs of dims and exchanges halves of registers.
template <Traits T>
  requires(T.kv == kFp8 && T.direct_cvt)
struct Values<T> {
  static constexpr int kReads = 2, kDimBlocks = 4;
  struct Raw {
    u32 token[8];
  };
  u32 place[8];

  MEMBER Values(const Lane& at) {
#pragma unroll
    for (int t = 0; t < 8; ++t) place[t] = Tile<T>::place(token_of(at.group, t), 8 * at.wave + at.column / 4) + at.column % 4 * 4;
  }
  MEMBER Raw read(LDS const char* tile, int step, int half) const {
    Raw raw;
#pragma unroll
    for (int t = 0; t < 8; ++t) raw.token[t] = *(LDS const u32*)(tile + place[t] + half * 64 + step * 32 * kQkDim);
    return raw;
  }
  MEMBER static bf16x8 operand(const Raw& raw, int e) {
    i32x4 all;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const u32 even = __builtin_bit_cast(u32, bf16_pair(raw.token[2 * pair], e / 2));
      const u32 odd = __builtin_bit_cast(u32, bf16_pair(raw.token[2 * pair + 1], e / 2));
      all[pair] = __builtin_amdgcn_perm(odd, even, e % 2 ? 0x07060302 : 0x05040100);
    }
    return __builtin_bit_cast(bf16x8, all);
  }
  MEMBER static int dim(int d, int group) { return d / 4 * 64 + 16 * group + d % 4; }
  static constexpr int kDimStep = 4;
};

// fp4 through transposing reads: 8 tokens of 32 dims, a block with one scale for each token. The scales go into the
// probabilities, since a conversion takes two tokens and one scale.
template <Traits T>
  requires(T.kv == kMxfp4)
struct Values<T> {
  static constexpr int kReads = 4, kDimBlocks = 2, kRow = Tile<T>::kRowBytes;
  typedef i32x2 Raw;
  u32 place[2];

  MEMBER Values(const Lane& at) {
    const u32 token = token_of(at.group, at.column % 8);
#pragma unroll
    for (int d = 0; d < 2; ++d) place[d] = Tile<T>::place(token, 4 * at.wave + d) + at.column / 8 * 8;
  }
  MEMBER Raw read(LDS const char* tile, int step, int block) const {
    return __builtin_amdgcn_ds_read_tr4_b64_v2i32((LDS i32x2*)(tile + place[block % 2] + block / 2 * 32 + step * 32 * kRow));
  }
  MEMBER static bf16x8 operand(const Raw& raw, int half) {
    bf16x8 all;
    const u32 word = raw[half];
    const bf16x2 pairs[4] = {
        __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(word, 1.0f, 0), __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(word, 1.0f, 1),
        __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(word, 1.0f, 2), __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(word, 1.0f, 3)};
#pragma unroll
    for (int i = 0; i < 8; ++i) all[i] = pairs[i / 2][i % 2];
    return all;
  }
  MEMBER static int dim(int d, int group) { return 16 * d + 4 * group; }
  static constexpr int kDimStep = 1;
};

// bf16 through transposing reads of 4 tokens of 16 dims.
template <Traits T>
  requires(T.kv == kBf16)
struct Values<T> {
  static constexpr int kReads = 8, kDimBlocks = 1, kRow = Tile<T>::kRowBytes;
  typedef bf16x8 Raw;
  u32 place[4];

  MEMBER Values(const Lane& at) {
    const u32 token = 4 * at.group + at.column / 4;
#pragma unroll
    for (int d = 0; d < 4; ++d) place[d] = Tile<T>::place(token, 16 * at.wave + 2 * d + at.column % 4 / 2) + at.column % 2 * 8;
  }
  MEMBER Raw read(LDS const char* tile, int step, int d) const {
    LDS const char* from = tile + place[d % 4] + d / 4 * 128 + step * 32 * kRow;
    const bf16x4 low = __builtin_amdgcn_ds_read_tr16_b64_v4bf16((LDS bf16x4*)from);
    const bf16x4 high = __builtin_amdgcn_ds_read_tr16_b64_v4bf16((LDS bf16x4*)(from + 16 * kRow));
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
  }
  MEMBER static bf16x8 operand(const Raw& raw, int) { return raw; }
  MEMBER static int dim(int d, int group) { return 16 * d + 4 * group; }
  static constexpr int kDimStep = 1;
};

DEVICE bf16x8 bf16_of(f32x4 low, f32x4 high) {
  return __builtin_shufflevector(__builtin_convertvector(low, bf16x4), __builtin_convertvector(high, bf16x4), 0, 1, 2, 3, 4, 5, 6, 7);
}

// What `preload` of a tile has read: everything, or nothing.
template <Traits T>
struct Preloaded {
  static constexpr int kSteps = T.tile / 32;
  typename Values<T>::Raw raw[T.preload_v ? kSteps : 1][Values<T>::kReads];

  MEMBER void read(const Values<T>& values, LDS const char* tile) {
    if (!T.preload_v) return;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < Values<T>::kReads; ++i) raw[step][i] = values.read(tile, step, i);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < Values<T>::kReads; ++i) pin(raw[step][i]);
  }

  // Without this the compiler would move the reads to where they are used.
  MEMBER static void pin(typename Values<T>::Raw& raw) {
    int words[sizeof(raw) / 4];
    __builtin_memcpy(words, &raw, sizeof(raw));
#pragma unroll
    for (int& word : words) asm volatile("" : "+v"(word));
    __builtin_memcpy(&raw, words, sizeof(raw));
  }
};

// o^T += V^T * p^T for a tile, and the sums of the probabilities as a product with ones.
template <Traits T>
  requires(!T.fp8_pv)
DEVICE void accumulate(const Values<T>& values, const Preloaded<T>& loaded, LDS const char* tile, const ScaleTile<T> LDS* scales, const Lane& at,
                       const f32x4 (*p)[Tile<T>::kBlocks], Accumulator* sums) {
  const bf16x8 ones = {1, 1, 1, 1, 1, 1, 1, 1};
#pragma unroll
  for (int step = 0; step < T.tile / 32; ++step) {
    bf16x8 weights[T.row_blocks];
#pragma unroll
    for (int r = 0; r < T.row_blocks; ++r) {
      weights[r] = bf16_of(p[r][2 * step], p[r][2 * step + 1]);
      sums[r].total = __builtin_amdgcn_mfma_f32_16x16x32_bf16(ones, weights[r], sums[r].total, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < Values<T>::kReads; ++i) {
      const auto raw = T.preload_v ? loaded.raw[step * T.preload_v][i] : values.read(tile, step, i);
      if constexpr (T.kv == kMxfp4) {
        LDS const float* scale = &scales->values[4 * at.wave + i][32 * step + 4 * at.group];
        const f32x4 low = *(LDS const f32x4*)scale, high = *(LDS const f32x4*)(scale + 16);
#pragma unroll
        for (int r = 0; r < T.row_blocks; ++r) weights[r] = bf16_of(p[r][2 * step] * low, p[r][2 * step + 1] * high);
      }
#pragma unroll
      for (int part = 0; part < Values<T>::kDimBlocks; ++part) {
        const bf16x8 v = values.operand(raw, part);
        const int d = i * Values<T>::kDimBlocks + part;
#pragma unroll
        for (int r = 0; r < T.row_blocks; ++r)
          sums[r].values[d] = __builtin_amdgcn_mfma_f32_16x16x32_bf16(v, weights[r], sums[r].values[d], 0, 0, 0);
      }
    }
  }
}

// The same with fp8 probabilities and V as it is: 128 tokens in one product.
template <Traits T>
  requires(T.fp8_pv)
DEVICE void accumulate(const Values<T>& values, const Preloaded<T>& loaded, LDS const char* tile, const ScaleTile<T> LDS*, const Lane&,
                       const f32x4 (*p)[Tile<T>::kBlocks], Accumulator* sums) {
  constexpr int kOne = 0x38383838;  // 1.0 in e4m3, four times
  const i32x8 ones = {kOne, kOne, kOne, kOne, kOne, kOne, kOne, kOne};
  i32x8 weights[T.row_blocks];
#pragma unroll
  for (int r = 0; r < T.row_blocks; ++r) {
#pragma unroll
    for (int b = 0; b < 8; ++b)
      weights[r][b] = __builtin_amdgcn_cvt_pk_fp8_f32(p[r][b][2], p[r][b][3], __builtin_amdgcn_cvt_pk_fp8_f32(p[r][b][0], p[r][b][1], 0, false), true);
    sums[r].total = scaled_product<kFormatFp8>(ones, weights[r], sums[r].total);
  }
#pragma unroll
  for (int d = 0; d < 8; ++d) {
    i32x8 v;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const i32x2 raw = T.preload_v ? loaded.raw[step * T.preload_v][d] : values.read(tile, step, d);
      v[2 * step] = raw[0];
      v[2 * step + 1] = raw[1];
    }
#pragma unroll
    for (int r = 0; r < T.row_blocks; ++r) sums[r].values[d] = scaled_product<kFormatFp8>(v, weights[r], sums[r].values[d]);
  }
}
