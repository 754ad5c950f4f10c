// Online softmax in base 2. Every lane of the four groups that share a query row keeps the same reference, so the second product
// may add up their contributions.

// The sums of one block of query rows over 128 output dims. Lane: row `column`; values[d] holds 4 of the dims.
struct Accumulator {
  f32x4 values[8] = {};
  f32x4 total = {};  // of the probabilities as the second product saw them; four times the same number

  MEMBER void rescale(float factor) {
#pragma unroll
    for (int d = 0; d < 8; ++d) values[d] *= factor;
    total *= factor;
  }
};

// Of 32 tokens, the one that element `index` of 8 in a lane's operand of the second product belongs to: those whose scores the
// lane has computed.
DEVICE u32 token_of(int group, int index) { return index < 4 ? 4 * group + index : 12 + 4 * group + index; }

// The larger of two words that are floats. Words as arguments: clang 22 takes __builtin_bit_cast(float, vector[1]) for vector[0].
DEVICE float larger(u32 a, u32 b) { return fmaxf(__builtin_bit_cast(float, a), __builtin_bit_cast(float, b)); }

// The largest of the lanes column, column + 16, + 32 and + 48.
DEVICE float largest_of_groups(float value) {
  u32 word = __builtin_bit_cast(u32, value);
  const auto halves = __builtin_amdgcn_permlane32_swap(word, word, false, false);
  word = __builtin_bit_cast(u32, larger(halves[0], halves[1]));
  const auto rows = __builtin_amdgcn_permlane16_swap(word, word, false, false);
  return larger(rows[0], rows[1]);
}

// Of kBlocks x 16 tokens at a time. Probabilities are 2^(score - shift). The shift follows the largest score, to which it gives
// the exponent kBias, but only when an exponent exceeds kLimit. As fp8, probabilities stay below 448 and, by a bias, far above
// the smallest fp8 number.
template <int kBlocks, int kBias>
struct Softmax {
  static constexpr float kLimit = 8;

  float to_log2;             // product -> score in base 2
  float shift = 0;
  float limit = -kInfinity;  // kLimit as soon as the row has met a score above -infinity; until then its sums are zero

  // Turns products into probabilities; rescales `sums` where the shift moves. No lane may be switched off.
  MEMBER void apply(f32x4 (&scores)[kBlocks], Accumulator& sums) {
    float best = -kInfinity;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      scores[b] = __builtin_elementwise_fma(scores[b], f32x4{to_log2, to_log2, to_log2, to_log2}, -f32x4{shift, shift, shift, shift});
      best = fmaxf(fmaxf(best, scores[b][0]), scores[b][1]);
      best = fmaxf(fmaxf(best, scores[b][2]), scores[b][3]);
    }
    if (__builtin_amdgcn_ballot_w64(best > limit)) move(best, scores, sums);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[b][i] = __builtin_amdgcn_exp2f(scores[b][i]);
  }

  MEMBER void move(float best, f32x4 (&scores)[kBlocks], Accumulator& sums) {
    best = largest_of_groups(best);
    const bool fresh = limit == -kInfinity;
    const float by = fresh ? (best == -kInfinity ? 0 : best - kBias) : fmaxf(best - kBias, 0);
    sums.rescale(fresh ? 0 : __builtin_amdgcn_exp2f(-by));
    // By the number itself and not by what it makes of the shift: next to a shift of 1e9 rounding is no small matter, and the
    // largest score must end at kBias.
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) scores[b] -= by;
    shift += by;
    limit = fresh && best == -kInfinity ? -kInfinity : kLimit;
  }
};

// Scores of tokens from `count` on become -infinity.
template <int kBlocks>
DEVICE void mask_tail(f32x4 (&scores)[kBlocks], int group, int count) {
  const int left = count - 4 * group;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (16 * b + i >= left) scores[b][i] = -kInfinity;
}
