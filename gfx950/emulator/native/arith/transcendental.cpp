// exp2, log2, reciprocal, square roots, sine and cosine.
//
// The hardware's results are within about 1 ulp (f64: about 2^29 ulp, meant to be refined); here each is the exact value
// rounded once, up to the error of a double-precision series (far below half an ulp of f32). The f32 forms of exp, log,
// rcp, rsq and sqrt do not support denormals whatever the mode says: LLVM scales around them for that reason.
#include "family.hpp"
#include "rounding.hpp"

namespace arith {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kTwoPi = 0x1.921fb54442d18p+2;

template <int N> double polynomial(double x, const double (&coefficients)[N]) {  // constant term first
  double sum = coefficients[N - 1];
  for (int i = N - 2; i >= 0; --i) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

float flush(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return bits & kExponent32 ? x : std::bit_cast<float>(bits & kSign32);
}

// 2^x by 2^n e^t, |t| <= ln(2)/2, Taylor series of e^t.
double exp2_double(double x) {
  constexpr double kTaylor[] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040,
                                1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600,
                                1.0 / 6227020800};
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low mantissa bits
  x = x > 300 ? 300 : x < -300 ? -300 : x;
  const double shifted = x + kRound;
  const double scale = std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) << 52) + (uint64_t{1023} << 52));
  return polynomial((x - (shifted - kRound)) * kLn2, kTaylor) * scale;
}

// log2 of a positive normal number by e + 2/ln2 artanh((m-1)/(m+1)), m in [sqrt(1/2), sqrt(2)).
double log2_double(double x) {
  constexpr double kSeries[] = {1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17,
                                1.0 / 19};
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd, kMantissa = (uint64_t{1} << 52) - 1;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t shifted = bits - kSqrtHalf + (uint64_t{1023} << 52);
  const int exponent = static_cast<int>(shifted >> 52) - 1023;
  const double m = std::bit_cast<double>((shifted & kMantissa) + kSqrtHalf);
  const double f = (m - 1) / (m + 1);
  return exponent + f * polynomial(f * f, kSeries) * (2 / kLn2);
}

double log2_any(double x) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double positive = x > 0 && x < kInfinity ? x : 1.0;
  double r = log2_double(positive);
  r = x == kInfinity ? x : r;
  r = x == 0 ? -kInfinity : r;
  return x < 0 || x != x ? std::numeric_limits<double>::quiet_NaN() : r;
}

// sin(2 pi x): the argument counts revolutions.
double sin_turns(double x) {
  constexpr double kTaylor[] = {1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                                1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000,
                                -1.0 / 121645100408832000};
  double r = x - round_even(x);
  r = std::fabs(r) > 0.25 ? std::copysign(0.5, r) - r : r;
  const double y = r * kTwoPi;
  return y * polynomial(y * y, kTaylor);
}

constexpr double kTurnsLimit = 256;  // out-of-range angles give sin 0 = 0 and cos 0 = 1

double sin_any(double x) {
  const double r = std::isinf(x) ? x - x : sin_turns(x);
  return std::fabs(x) > kTurnsLimit && !std::isinf(x) ? 0 : r;
}
double cos_any(double x) {
  const double r = std::isinf(x) ? x - x : sin_turns(std::fabs(x) + 0.25);
  return std::fabs(x) > kTurnsLimit && !std::isinf(x) ? 1 : r;
}

// Rounds to f32 so that a second rounding to f16 is right: inexact results get an odd last bit.
float round_odd(double x) {
  const float f = static_cast<float>(x);
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const double error = x - f;
  if (!(error != 0) || (bits & 1) || !std::isfinite(f)) return f;
  return std::bit_cast<float>((error > 0) == (x > 0) ? bits + 1 : bits - 1);
}

float exp_f32(float x) { return flush(static_cast<float>(exp2_double(x))); }
float log_f32(float x) { return static_cast<float>(log2_any(flush(x))); }
float rcp_f32(float x) { return flush(1.0f / flush(x)); }
float rsq_f32(float x) { return static_cast<float>(1 / std::sqrt(static_cast<double>(flush(x)))); }
float sqrt_f32(float x) { return std::sqrt(flush(x)); }

}  // namespace

OpList transcendental_ops() {
  using F32 = float(float);
  using F16 = Half(Half);
  using F64 = double(double);
  return {
      lane_op<F32, exp_f32>("v_exp_f32"),
      lane_op<F32, exp_f32>("v_exp_legacy_f32"),
      lane_op<F32, log_f32>("v_log_f32"),
      lane_op<F32, log_f32>("v_log_legacy_f32"),
      lane_op<F32, rcp_f32>("v_rcp_f32"),
      lane_op<F32, rcp_f32>("v_rcp_iflag_f32"),
      lane_op<F32, rsq_f32>("v_rsq_f32"),
      lane_op<F32, sqrt_f32>("v_sqrt_f32"),
      lane_op<F32, [](float x) { return static_cast<float>(sin_any(x)); }>("v_sin_f32"),
      lane_op<F32, [](float x) { return static_cast<float>(cos_any(x)); }>("v_cos_f32"),

      lane_op<F16, [](float x) { return round_odd(exp2_double(x)); }>("v_exp_f16"),
      lane_op<F16, [](float x) { return round_odd(log2_any(x)); }>("v_log_f16"),
      lane_op<F16, [](float x) { return 1.0f / x; }>("v_rcp_f16"),
      lane_op<F16, [](float x) { return round_odd(1 / std::sqrt(static_cast<double>(x))); }>("v_rsq_f16"),
      lane_op<F16, [](float x) { return std::sqrt(x); }>("v_sqrt_f16"),
      lane_op<F16, [](float x) { return round_odd(sin_any(x)); }>("v_sin_f16"),
      lane_op<F16, [](float x) { return round_odd(cos_any(x)); }>("v_cos_f16"),

      lane_op<F64, [](double x) { return 1 / x; }>("v_rcp_f64"),
      lane_op<F64, [](double x) { return 1 / std::sqrt(x); }>("v_rsq_f64"),
      lane_op<F64, [](double x) { return std::sqrt(x); }>("v_sqrt_f64"),
  };
}

}  // namespace arith
