// VOP3P operations on both halves of 32-bit registers (f16, i16, u16) or both words of 64-bit ones (f32, b32).
// op_sel picks the part of each source that feeds the low result, op_sel_hi the one for the high result.
#include <algorithm>

#include "family.hpp"
#include "float16.hpp"
#include "formulas.hpp"

namespace arith {
namespace {

// The modifiers of one of the two results, in the form that the single operations use.
Modifiers part_modifiers(const Modifiers& m, bool high) {
  Modifiers part = m;
  part.op_sel = (high ? m.op_sel_hi : m.op_sel) & 7;
  part.neg = high ? m.neg_hi : m.neg;
  part.abs = part.omod = 0;
  return part;
}

template <class Signature, auto F> struct PackedKernel;
template <class D, class... S, auto F> struct PackedKernel<D(S...), F> {
  static constexpr bool kAccumulates = (is_old<S> || ...);  // VOP2: no op_sel, the halves stay in their places

  static void run(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
    Lanes low, high;
    Modifiers low_part = part_modifiers(m, false), high_part = part_modifiers(m, true);
    if constexpr (kAccumulates) {
      std::copy_n(d[0], kLanes, low);
      shift_down(high, d[0]);
      low_part.op_sel = 0;
      high_part.op_sel = 3;
    }
    Kernel<D(S...), F>::run(&low, s0, s1, s2, low_part, mode);
    Kernel<D(S...), F>::run(&high, s0, s1, s2, high_part, mode);
    for (int lane = 0; lane < kLanes; ++lane) d[0][lane] = pack_halves(low[lane], high[lane]);
  }
  static void shift_down(Lanes& to, const Lanes& from) {
    for (int lane = 0; lane < kLanes; ++lane) to[lane] = from[lane] >> 16;
  }
};

template <class Signature, auto F> Op packed_op(const char* name) {
  Op op = DescribeLane<Signature>::make(name);
  for (int i = 0; i < op.src_count; ++i)
    op.src_type[i] = op.src_type[i] == SrcType::F16 ? SrcType::PackedF16 : SrcType::PackedB16;
  op.lane = PackedKernel<Signature, F>::run;
  op.read_mask = nullptr;
  op.shadow = poison::packed_halves;
  return op;
}

// Packed f32: the part of a source is one of its two words.
template <class Signature, auto F> struct WordsKernel;
template <class... S, auto F> struct WordsKernel<float(S...), F> {
  static void run(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
    for (int part = 0; part < 2; ++part) {
      Modifiers p = part_modifiers(m, part);
      const uint8_t word = p.op_sel;
      p.op_sel = 0;
      Kernel<float(S...), F>::run(d + part, s0 + (word & 1), s1 + (word >> 1 & 1), s2 ? s2 + (word >> 2 & 1) : s2, p, mode);
    }
  }
};

template <class Signature, auto F> Op packed_f32_op(const char* name) {
  Op op = DescribeLane<Signature>::make(name);
  op.dst_words = 2;
  for (int i = 0; i < op.src_count; ++i) op.src_words[i] = 2, op.src_type[i] = SrcType::PackedF32;
  op.lane = WordsKernel<Signature, F>::run;
  op.shadow = poison::packed_words;
  return op;
}

// v_pk_mov_b32: low word from source 0, high word from source 1, each the word that its own op_sel bit picks.
void pk_mov(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers& m, const Mode&) {
  std::copy_n(s0[m.op_sel & 1], kLanes, d[0]);
  std::copy_n(s1[m.op_sel >> 1 & 1], kLanes, d[1]);
}

Op pk_mov_op() {
  Op op = DescribeLane<uint64_t(uint64_t, uint64_t)>::make("v_pk_mov_b32");
  op.src_type[0] = op.src_type[1] = SrcType::PackedF32;
  op.lane = pk_mov;
  op.shadow = poison::moved<3>;
  return op;
}

using u16 = uint16_t;
using i16 = int16_t;
using SatU16 = Saturated<u16>;
using SatI16 = Saturated<i16>;

}  // namespace

OpList packed_ops() {
  using H2 = Half(Half, Half);
  using H3 = Half(Half, Half, Half);
  return {
      packed_op<H2, [](float a, float b) { return a + b; }>("v_pk_add_f16"),
      packed_op<H2, [](float a, float b) { return a * b; }>("v_pk_mul_f16"),
      packed_op<H3, fma_f16>("v_pk_fma_f16"),
      packed_op<Half(Half, Half, Old<Half>), fma_f16>("v_pk_fmac_f16"),
      packed_op<H2, min_num<float>>("v_pk_min_f16"),
      packed_op<H2, max_num<float>>("v_pk_max_f16"),
      packed_op<H3, minimum3<float>>("v_pk_minimum3_f16"),
      packed_op<H3, maximum3<float>>("v_pk_maximum3_f16"),

      packed_op<SatU16(u16, u16), kAdd>("v_pk_add_u16"),
      packed_op<SatU16(u16, u16), kSub>("v_pk_sub_u16"),
      packed_op<SatI16(i16, i16), kAdd>("v_pk_add_i16"),
      packed_op<SatI16(i16, i16), kSub>("v_pk_sub_i16"),
      packed_op<SatU16(u16, u16, u16), kMad>("v_pk_mad_u16"),
      packed_op<SatI16(i16, i16, i16), kMad>("v_pk_mad_i16"),
      packed_op<u16(u16, u16), [](u16 a, u16 b) { return static_cast<u16>(uint32_t{a} * b); }>("v_pk_mul_lo_u16"),
      packed_op<u16(u16, u16), kMin>("v_pk_min_u16"),
      packed_op<u16(u16, u16), kMax>("v_pk_max_u16"),
      packed_op<i16(i16, i16), kMin>("v_pk_min_i16"),
      packed_op<i16(i16, i16), kMax>("v_pk_max_i16"),
      packed_op<u16(u16, u16), [](u16 n, u16 a) { return static_cast<u16>(a << (n & 15)); }>("v_pk_lshlrev_b16"),
      packed_op<u16(u16, u16), [](u16 n, u16 a) { return static_cast<u16>(a >> (n & 15)); }>("v_pk_lshrrev_b16"),
      packed_op<i16(i16, i16), [](i16 n, i16 a) { return static_cast<i16>(a >> (n & 15)); }>("v_pk_ashrrev_i16"),

      packed_f32_op<float(float, float), [](float a, float b) { return a + b; }>("v_pk_add_f32"),
      packed_f32_op<float(float, float), [](float a, float b) { return a * b; }>("v_pk_mul_f32"),
      packed_f32_op<float(float, float, float), [](float a, float b, float c) { return std::fma(a, b, c); }>(
          "v_pk_fma_f32"),
      pk_mov_op(),
  };
}

}  // namespace arith
