// f64 arithmetic.
#include "family.hpp"
#include "rounding.hpp"

namespace arith {
namespace {

constexpr auto kFma = [](double a, double b, double c) { return std::fma(a, b, c); };

// 2/pi as a 1201-bit fraction, most significant bit first, for the argument reduction of large angles.
constexpr uint32_t kTwoOverPi[] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
    0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
    0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
    0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab};

int bit_of_two_over_pi(int place) {  // place 1 has weight 1/2
  const int index = place - 1;
  return index < 1201 ? kTwoOverPi[index / 32] >> (31 - index % 32) & 1 : 0;
}

// v_trig_preop_f64: the 53 bits of 2/pi that start `shift` bits below the binary point, as a number.
double trig_preop(double x, uint32_t segment) {
  const int exponent = static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7ff);
  int shift = static_cast<int>(segment & 31) * 53;
  if (exponent > 1077) shift += exponent - 1077;
  uint64_t bits = 0;
  for (int i = 1; i <= 53; ++i) bits = bits << 1 | static_cast<uint64_t>(bit_of_two_over_pi(shift + i));
  return std::ldexp(static_cast<double>(bits), -53 - shift + (exponent >= 1968 ? 128 : 0));
}

}  // namespace

OpList float64_ops() {
  using F1 = double(double);
  using F2 = double(double, double);
  using F3 = double(double, double, double);
  return {
      lane_op<F2, [](double a, double b) { return a + b; }>("v_add_f64"),
      lane_op<F2, [](double a, double b) { return a * b; }>("v_mul_f64"),
      lane_op<F3, kFma>("v_fma_f64"),
      lane_op<double(double, double, Old<double>), kFma>("v_fmac_f64"),
      lane_op<F2, min_num<double>>("v_min_f64"),
      lane_op<F2, max_num<double>>("v_max_f64"),
      lane_op<F1, fract<double>>("v_fract_f64"),
      lane_op<F1, [](double a) { return std::trunc(a); }>("v_trunc_f64"),
      lane_op<F1, [](double a) { return std::ceil(a); }>("v_ceil_f64"),
      lane_op<F1, [](double a) { return std::floor(a); }>("v_floor_f64"),
      lane_op<F1, [](double a) { return round_even(a); }>("v_rndne_f64"),
      lane_op<double(double, int32_t), [](double a, int32_t e) { return std::ldexp(a, e); }>("v_ldexp_f64"),
      lane_op<F1, frexp_mantissa<double>>("v_frexp_mant_f64"),
      lane_op<int32_t(double), frexp_exponent<double>>("v_frexp_exp_i32_f64"),
      lane_op<double(double, uint32_t), trig_preop>("v_trig_preop_f64"),
  };
}

}  // namespace arith
