// Rounding to integers, scaling by powers of two, and taking numbers apart; float and double.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>

#include "minmax.hpp"

namespace arith {

// x - floor(x), never 1: for tiny negative x the difference rounds up to 1, where the hardware gives the number below it.
template <class F> F fract(F x) {
  constexpr F kBelowOne = sizeof(F) == 4 ? F(0x1.fffffep-1) : F(0x1.fffffffffffffp-1);
  const F r = x - std::floor(x);
  return r >= 1 ? kBelowOne : r;
}

inline float round_even(float x) { return __builtin_roundevenf(x); }
inline double round_even(double x) { return __builtin_roundeven(x); }

inline double power_of_two(int exponent) {  // -1022..1023
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}
// One rounding: every f32 times every clamped power fits a double exactly.
inline float ldexp_float(float x, int exponent) {
  return static_cast<float>(x * power_of_two(std::clamp(exponent, -400, 400)));
}

template <class F> F frexp_mantissa(F x) {
  int exponent;
  return std::isfinite(x) ? std::frexp(x, &exponent) : x;
}
template <class F> int frexp_exponent(F x) {
  int exponent = 0;
  if (std::isfinite(x)) std::frexp(x, &exponent);
  return exponent;
}

}  // namespace arith
