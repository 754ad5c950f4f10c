// f16 arithmetic. Values travel as f32: sums, products, quotients and roots of f16 numbers rounded to f32 and again to f16
// equal one rounding (24 >= 2 * 11 + 2 bits); fused multiply-add needs care.
#include "float16.hpp"

#include "family.hpp"
#include "rounding.hpp"

namespace arith {
namespace {

// v_mad_f16 and its kin round the product first.
float mad_f16(float a, float b, float c) { return half_to_float(float_to_half(a * b)) + c; }

// v_fma_mix*: each source is an f32 or, if its op_sel_hi bit is set, the f16 in the half that op_sel picks. neg_hi holds the
// abs bits.
struct MixSource {
  FloatBits<uint32_t, kSign32, kExponent32> bits;
  bool is_half;
  int shift;
  MixSource(const Modifiers& m, const Mode& mode, int i)
      : bits({.neg = m.neg, .abs = m.neg_hi}, i, !(mode.fp32_denorm & 1)),
        is_half(m.op_sel_hi >> i & 1),
        shift(m.op_sel >> i & 1 ? 16 : 0) {}
  float operator()(const Lanes* s, int lane) const {
    const uint32_t raw = s[0][lane];
    const float half = half_to_float(static_cast<uint16_t>(raw >> shift));
    return std::bit_cast<float>(bits(is_half ? std::bit_cast<uint32_t>(half) : raw));
  }
};

template <class D> void fma_mix(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m,
                                const Mode& mode) {
  const MixSource a(m, mode, 0), b(m, mode, 1), c(m, mode, 2);
  Modifiers placed = m;
  placed.op_sel = 0;
  const Result<D, false> result(placed, mode);
  RoundingScope rounding(std::is_same_v<D, float> ? mode.round32 : mode.round16_64);
  for (int lane = 0; lane < kLanes; ++lane) result(d, lane, std::fma(a(s0, lane), b(s1, lane), c(s2, lane)));
}

void fma_mixhi(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  Lanes low;
  fma_mix<Half>(&low, s0, s1, s2, m, mode);
  for (int lane = 0; lane < kLanes; ++lane) d[0][lane] = pack_halves(d[0][lane], low[lane]);
}

uint32_t mix_read_mask(int source, const Modifiers& m) {
  return m.op_sel_hi >> source & 1 ? half_mask(m.op_sel >> source & 1) : 0xffffffff;
}

Op fma_mix_op(const char* name, LaneFn run, BitMaskFn write_mask = nullptr) {
  Op op = DescribeLane<float(float, float, float)>::make(name);
  for (SrcType& type : op.src_type) type = SrcType::Mix;
  op.lane = run;
  op.read_mask = mix_read_mask;
  op.write_mask = write_mask;
  op.reads_dst = write_mask != nullptr;
  return op;
}

}  // namespace

OpList float16_ops() {
  using F1 = Half(Half);
  using F2 = Half(Half, Half);
  using F3 = Half(Half, Half, Half);
  using Kept3 = Kept<Half>(Half, Half, Half);
  return {
      lane_op<F2, [](float a, float b) { return a + b; }>("v_add_f16"),
      lane_op<F2, [](float a, float b) { return a - b; }>("v_sub_f16"),
      lane_op<F2, [](float a, float b) { return b - a; }>("v_subrev_f16"),
      lane_op<F2, [](float a, float b) { return a * b; }>("v_mul_f16"),
      lane_op<Half(Half, Half, Old<Half>), mad_f16>("v_mac_f16"),
      lane_op<F3, mad_f16>("v_madak_f16"),
      lane_op<F3, mad_f16>("v_madmk_f16"),
      lane_op<F3, mad_f16>("v_mad_legacy_f16"),
      lane_op<Kept3, mad_f16>("v_mad_f16"),
      lane_op<F3, fma_f16>("v_fma_legacy_f16"),
      lane_op<Kept3, fma_f16>("v_fma_f16"),

      lane_op<F2, min_num<float>>("v_min_f16"),
      lane_op<F2, max_num<float>>("v_max_f16"),
      lane_op<Kept3, min3_num<float>>("v_min3_f16"),
      lane_op<Kept3, max3_num<float>>("v_max3_f16"),
      lane_op<Kept3, med3_num<float>>("v_med3_f16"),

      lane_op<F1, [](float a) { return std::min(a - std::floor(a), kBelowOneF16); }>("v_fract_f16"),
      lane_op<F1, [](float a) { return std::trunc(a); }>("v_trunc_f16"),
      lane_op<F1, [](float a) { return std::ceil(a); }>("v_ceil_f16"),
      lane_op<F1, [](float a) { return std::floor(a); }>("v_floor_f16"),
      lane_op<F1, [](float a) { return round_even(a); }>("v_rndne_f16"),
      lane_op<Half(Half, int16_t), [](float a, int16_t e) { return ldexp_float(a, std::clamp<int>(e, -60, 60)); }>(
          "v_ldexp_f16"),
      lane_op<F1, frexp_mantissa<float>>("v_frexp_mant_f16"),
      lane_op<int16_t(Half), [](float a) { return static_cast<int16_t>(frexp_exponent(a)); }>("v_frexp_exp_i16_f16"),

      fma_mix_op("v_fma_mix_f32", fma_mix<float>),
      fma_mix_op("v_fma_mixlo_f16", fma_mix<Kept<Half>>, [](int, const Modifiers&) { return half_mask(false); }),
      fma_mix_op("v_fma_mixhi_f16", fma_mixhi, [](int, const Modifiers&) { return half_mask(true); }),
  };
}

}  // namespace arith
