// Dot products of the parts of 32-bit registers, added to a 32-bit accumulator.
#include "family.hpp"

namespace arith {
namespace {

using u32 = uint32_t;
using i32 = int32_t;

// Part i (of Bits bits) of a word, sign-extended if T is signed.
template <int Bits, class T> T part(u32 word, int i) {
  const u32 top = word << (32 - Bits - i * Bits);
  return static_cast<T>(top) >> (32 - Bits);
}

// The word whose low half feeds the first product and whose high half the second, as op_sel and op_sel_hi say. The
// accumulating forms are VOP2 and have neither.
template <bool Accumulates> u32 arrange_halves(u32 word, int source, const Modifiers& m) {
  if (Accumulates) return word;
  const u32 low = word >> (m.op_sel >> source & 1 ? 16 : 0), high = word >> (m.op_sel_hi >> source & 1 ? 16 : 0);
  return pack_halves(low, high);
}

template <class T, int Bits, bool Accumulates>
void dot_integer(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  const Result<Saturated<T>, false> result(m, mode);
  const Lanes* acc = Accumulates ? d : s2;
  for (int lane = 0; lane < kLanes; ++lane) {
    u32 a = s0[0][lane], b = s1[0][lane];
    if constexpr (Bits == 16) a = arrange_halves<Accumulates>(a, 0, m), b = arrange_halves<Accumulates>(b, 1, m);
    int64_t sum = static_cast<T>(acc[0][lane]);
    for (int i = 0; i < 32 / Bits; ++i) sum += int64_t{part<Bits, T>(a, i)} * part<Bits, T>(b, i);
    result(d, lane, sum);
  }
}

float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

float f16_value(uint16_t bits) { return half_to_float(bits); }
float bf16_value(uint16_t bits) { return bf16_to_float(bits); }

// Sign flips of the halves of a source; the accumulating forms are VOP2, where the abs bits stand for neg_hi.
template <bool Accumulates> u32 signs(const Modifiers& m, int source) {
  const uint8_t high = Accumulates ? m.abs : m.neg_hi;
  return (m.neg >> source & 1 ? 0x8000u : 0) | (high >> source & 1 ? 0x80000000u : 0);
}

// One rounding per addition, in the ISA's order: the accumulator first for f16, last for bf16 (first where it is the
// destination). f32 denormals of the accumulator and the result are flushed whatever the mode says (LLVM relies on that).
template <auto Decode, bool AccumulatorFirst, bool Accumulates>
void dot_float(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  const Result<float, false> result(m, mode);
  const Lanes* acc = Accumulates ? d : s2;
  const u32 sign_a = signs<Accumulates>(m, 0), sign_b = signs<Accumulates>(m, 1);
  const u32 sign_c = AccumulatorFirst && !Accumulates && m.neg & 4 ? kSign32 : 0;  // bf16: S2 has no modifiers
  for (int lane = 0; lane < kLanes; ++lane) {
    const u32 a = arrange_halves<Accumulates>(s0[0][lane], 0, m) ^ sign_a;
    const u32 b = arrange_halves<Accumulates>(s1[0][lane], 1, m) ^ sign_b;
    const float c = flush(std::bit_cast<float>(acc[0][lane] ^ sign_c));
    const float a_low = Decode(static_cast<uint16_t>(a)), a_high = Decode(static_cast<uint16_t>(a >> 16));
    const float b_low = Decode(static_cast<uint16_t>(b)), b_high = Decode(static_cast<uint16_t>(b >> 16));
    const float sum = AccumulatorFirst ? std::fma(a_high, b_high, std::fma(a_low, b_low, c))
                                       : std::fma(a_high, b_high, a_low * b_low) + c;
    result(d, lane, flush(sum));
  }
}

Op dot_op(const char* name, LaneFn run, SrcType parts, SrcType sum) {
  Op op = DescribeLane<u32(u32, u32, u32)>::make(name);
  op.src_type[0] = op.src_type[1] = parts;
  op.src_type[2] = sum;
  op.lane = run;
  op.read_mask = nullptr;
  return op;
}

Op dotc_op(const char* name, LaneFn run, SrcType parts) {
  Op op = DescribeLane<u32(u32, u32, Old<u32>)>::make(name);
  op.src_type[0] = op.src_type[1] = parts;
  op.lane = run;
  op.read_mask = nullptr;
  return op;
}

}  // namespace

OpList dot_ops() {
  using enum SrcType;
  return {
      dot_op("v_dot2_f32_f16", dot_float<f16_value, true, false>, PackedF16, F32),
      dot_op("v_dot2_f32_bf16", dot_float<bf16_value, false, false>, PackedBF16, F32),
      dot_op("v_dot2_i32_i16", dot_integer<i32, 16, false>, PackedB16, B32),
      dot_op("v_dot2_u32_u16", dot_integer<u32, 16, false>, PackedB16, B32),
      dot_op("v_dot4_i32_i8", dot_integer<i32, 8, false>, B32, B32),
      dot_op("v_dot4_u32_u8", dot_integer<u32, 8, false>, B32, B32),
      dot_op("v_dot8_i32_i4", dot_integer<i32, 4, false>, B32, B32),
      dot_op("v_dot8_u32_u4", dot_integer<u32, 4, false>, B32, B32),

      dotc_op("v_dot2c_f32_f16", dot_float<f16_value, true, true>, PackedF16),
      dotc_op("v_dot2c_f32_bf16", dot_float<bf16_value, true, true>, PackedBF16),
      dotc_op("v_dot2c_i32_i16", dot_integer<i32, 16, true>, PackedB16),
      dotc_op("v_dot4c_i32_i8", dot_integer<i32, 8, true>, B32),
      dotc_op("v_dot8c_i32_i4", dot_integer<i32, 4, true>, B32),
  };
}

}  // namespace arith
