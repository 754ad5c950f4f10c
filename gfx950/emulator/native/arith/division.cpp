// The steps of IEEE division: v_div_scale, v_div_fmas, v_div_fixup.
//
// scale keeps the Newton iteration between them away from denormals and infinities and flags quotients that fmas has to
// scale back; fixup puts in the special cases. Where the ISA's text leaves the direction of a scaling open or would
// overflow, the direction is the one that makes the division come out correctly rounded (a test divides by the whole
// sequence).
#include "mask_kernel.hpp"
#include "rounding.hpp"

namespace arith {
namespace {

template <class F> struct Format;
template <> struct Format<float> {
  static constexpr int kMantissaBits = 23, kExponentMask = 0xff, kScale = 64, kFarApart = 96, kUnderflow = -150;
  static constexpr float kMinNormal = 0x1p-126f;
};
template <> struct Format<double> {
  static constexpr int kMantissaBits = 52, kExponentMask = 0x7ff, kScale = 128, kFarApart = 768, kUnderflow = -1075;
  static constexpr double kMinNormal = 0x1p-1022;
};

template <class F> int exponent(F x) {  // biased
  return static_cast<int>(std::bit_cast<BitsOf<F>>(x) >> Format<F>::kMantissaBits) & Format<F>::kExponentMask;
}
template <class F> bool is_denormal(F x) { return x != 0 && exponent(x) == 0; }

template <class F> bool tiny_quotient(F n, F d) {  // below the normal numbers, though not zero
  return n != 0 && std::fabs(n / d) < Format<F>::kMinNormal;
}

// s0 is the operand to scale: the denominator s1 or the numerator s2.
template <class F> WithFlag<F> div_scale(F s0, F s1, F s2, bool) {
  constexpr int kScale = Format<F>::kScale;
  auto scaled = [&](int by) { return std::ldexp(s0, by); };
  if (s1 == 0 || s2 == 0) return {std::numeric_limits<F>::quiet_NaN(), false};
  if (exponent(s2) - exponent(s1) >= Format<F>::kFarApart) return {s0 == s1 ? scaled(kScale) : s0, true};
  if (is_denormal(s1)) return {scaled(kScale), false};
  const bool tiny_reciprocal = tiny_quotient(F(1), s1), tiny = tiny_quotient(s2, s1);
  if (tiny_reciprocal && tiny) return {s0 == s1 ? scaled(-kScale) : s0, true};
  if (tiny_reciprocal) return {scaled(-kScale), false};
  if (tiny) return {s0 == s2 ? scaled(kScale) : s0, true};
  if (exponent(s2) <= Format<F>::kMantissaBits + (sizeof(F) == 8)) return {scaled(kScale), false};
  return {s0, false};
}

template <class F> void two_sum(F a, F b, F& sum, F& error) {
  sum = a + b;
  const F part = sum - a;
  error = (a - (sum - part)) + (b - part);
}

// a * b + c - fma(a, b, c), or at least its sign (Boldo and Muller, "Exact and approximated error of the FMA").
template <class F> F fma_error(F a, F b, F c, F r) {
  const F product = a * b, rest = std::fma(a, b, -product);
  F sum, low, high, middle;
  two_sum(c, rest, sum, low);
  two_sum(product, sum, high, middle);
  return ((high - r) + middle) + low;
}

// r * 2^-scale, r being a rounded number whose exact value differs by `error`: one rounding in all.
template <class F> F scale_down(F r, F error, int scale) {
  const F scaled = std::ldexp(r, -scale), lost = r - std::ldexp(scaled, scale);
  const F half = std::ldexp(std::numeric_limits<F>::denorm_min(), scale - 1);
  const bool tie = std::fabs(lost) == half, other_side = tie && error != 0 && (error > 0) == (lost > 0);
  return other_side ? scaled + std::copysign(std::numeric_limits<F>::denorm_min(), lost) : scaled;
}

// The quotient s2 was scaled down if it is large, up if it is small.
template <class F> WithFlag<F> div_fmas(F s0, F s1, F s2, bool scaled) {
  constexpr int kScale = Format<F>::kScale;
  const F r = std::fma(s0, s1, s2);
  if (!scaled) return {r, false};
  if (exponent(s2) > Format<F>::kExponentMask / 2) return {std::ldexp(r, kScale), false};
  return {scale_down(r, fma_error(s0, s1, s2, r), kScale), false};
}

// Quotient s0 of numerator s2 by denominator s1, with the special cases.
template <class F> F div_special(F s0, F s1, F s2) {
  constexpr F kInfinity = std::numeric_limits<F>::infinity();
  const F sign = is_negative(s1) != is_negative(s2) ? F(-1) : F(1);
  if (is_nan(s2)) return quieten(s2);
  if (is_nan(s1)) return quieten(s1);
  if ((s1 == 0 && s2 == 0) || (std::isinf(s1) && std::isinf(s2))) return -std::numeric_limits<F>::quiet_NaN();
  if (s1 == 0 || std::isinf(s2)) return std::copysign(kInfinity, sign);
  if (std::isinf(s1) || s2 == 0) return std::copysign(F(0), sign);
  return std::copysign(s0, sign);
}
// A quotient that left the format's range on the way is an overflow or, by its operands' exponents, an underflow.
template <class F> F div_fixup(F s0, F s1, F s2) {
  const bool underflow = exponent(s2) - exponent(s1) < Format<F>::kUnderflow;
  const bool overflow = !std::isfinite(s0);
  return div_special(underflow ? F(0) : overflow ? std::numeric_limits<F>::infinity() : s0, s1, s2);
}

// v_div_scale's carry-out is per lane, its scaled operand a float.
template <class F> Op scale_op(const char* name) { return mask_op<F(F, F, F), div_scale<F>>(name, kOut); }
template <class F> Op fmas_op(const char* name) { return mask_op<F(F, F, F), div_fmas<F>>(name, kIn); }

}  // namespace

OpList division_ops() {
  return {
      scale_op<float>("v_div_scale_f32"),
      scale_op<double>("v_div_scale_f64"),
      fmas_op<float>("v_div_fmas_f32"),
      fmas_op<double>("v_div_fmas_f64"),
      lane_op<float(float, float, float), div_fixup<float>>("v_div_fixup_f32"),
      lane_op<double(double, double, double), div_fixup<double>>("v_div_fixup_f64"),
      lane_op<Kept<Half>(Half, Half, Half), div_special<float>>("v_div_fixup_f16"),
      lane_op<Half(Half, Half, Half), div_special<float>>("v_div_fixup_legacy_f16"),
  };
}

}  // namespace arith
