// Block-sparse GQA decode on an NVFP4 cache for gfx950, one family of kernels. This file: what an instantiation is, and what a
// wave holds in LDS.
//
// A workgroup of 4 waves takes one query row, one KV head with its query heads, and one split of the blocks that the row has
// chosen. Wave w takes tokens 32 * w + 0..31 of every block, so that until the end the waves share nothing and wait for nobody.
// `column` = lane % 16 is a query head, `group` = lane / 16 selects tokens 4 * group + 0..3 of each 16. Scores are computed
// transposed (tokens are the rows of the product), which leaves a lane with the probabilities that it needs itself as an operand
// of the second product. E2M1 times E4M3 is exact in f16.

typedef _Float16 f16x2 __attribute__((ext_vector_type(2)));
typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 f16x8 __attribute__((ext_vector_type(8)));

constexpr int kHeadDim = 128, kBlockTokens = 128, kWaveTokens = kBlockTokens / kWaves;
constexpr int kScaleDims = 16, kScales = kHeadDim / kScaleDims;  // dims that share one E4M3 scale; scales of a token
constexpr int kTokenBytes = kHeadDim / 2;
// A page holds, each for all KV heads: K data, K scales, V data, V scales. Bytes of one head:
constexpr int kDataBytes = kBlockTokens * kTokenBytes, kScaleBytes = kBlockTokens * kScales;
constexpr int kHeadBytes = 2 * (kDataBytes + kScaleBytes);

// One instantiation. All members are compile-time constants of the kernel.
struct Traits {
  int buffers;         // blocks in LDS, 2 to 4: one is computed, the others are on their way
  int waves_per_simd;  // occupancy that the registers must allow
  bool swizzled;       // V scales of 4 tokens lie together, token t and scale s at 32 * (t / 4) + 4 * s + t % 4; else at 8 * t + s
};

// What a wave loads of a block: its tokens, as they lie in the page, but for the order of the chunks of 16 bytes in a token:
// their number is exchanged by XOR with `swizzle(token)`, so that the tokens which a quarter of a wave reads at once lie in
// different banks (64 banks of 4 bytes).
struct WaveBlock {
  alignas(16) char k[kWaveTokens * kTokenBytes];
  char v[kWaveTokens * kTokenBytes];
  u32 k_scales[kWaveTokens * kScales / 4];
  u32 v_scales[kWaveTokens * kScales / 4];

  DEVICE u32 swizzle(u32 token) { return ((token >> 2) ^ (token >> 3 & 2)) & 3; }
  DEVICE u32 place(u32 token, u32 chunk) { return token * kTokenBytes + (chunk ^ swizzle(token)) * 16; }
};

// V scales of a block as numbers: [scale][group] those of the 8 tokens of a lane's operand.
struct ValueScales {
  f16x8 of[kScales][4];
};

// See merge.hip: the sums of one wave.
struct WaveSums {
  f32x4 values[kScales][64];
  float total[16], shift[16];
};

template <Traits T>
struct WaveShared {
  union {
    WaveBlock ring[T.buffers];
    WaveSums sums;  // when all blocks are done
  };
  ValueScales value_scales;
};

template <Traits T>
struct Shared {
  WaveShared<T> waves[kWaves];
  u32 ticket;
};
