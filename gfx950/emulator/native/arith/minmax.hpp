// Minimum and maximum as the ISA defines them, for float and double (f16 values are handled as floats).
#pragma once
#include <bit>
#include <cmath>
#include <type_traits>

#include "arith.hpp"
#include "float_mode.hpp"

namespace arith {

template <class F> using BitsOf = std::conditional_t<sizeof(F) == 4, uint32_t, uint64_t>;
template <class F> constexpr BitsOf<F> kQuietBit = sizeof(F) == 4 ? BitsOf<F>(kQuiet32) : BitsOf<F>(kQuiet64);

template <class F> bool is_nan(F x) { return x != x; }
template <class F> bool is_signalling(F x) { return is_nan(x) && !(std::bit_cast<BitsOf<F>>(x) & kQuietBit<F>); }
template <class F> F quieten(F x) { return std::bit_cast<F>(std::bit_cast<BitsOf<F>>(x) | kQuietBit<F>); }
template <class F> bool is_negative(F x) { return std::bit_cast<BitsOf<F>>(x) >> (8 * sizeof(F) - 1); }

// Quiet NaNs lose against numbers; signalling ones win, quietened, in IEEE mode. -0 is below +0.
template <class F> F pick(F a, F b, bool take_a, const Mode& mode) {
  F r = take_a ? a : b;
  r = is_nan(b) ? a : r;
  r = is_nan(a) ? b : r;
  if (mode.ieee) {
    r = is_signalling(b) ? quieten(b) : r;
    r = is_signalling(a) ? quieten(a) : r;
  }
  return r;
}
template <class F> F min_num(F a, F b, const Mode& mode) {
  return pick(a, b, a < b || (a == b && is_negative(a)), mode);
}
template <class F> F max_num(F a, F b, const Mode& mode) {
  return pick(a, b, a > b || (a == b && !is_negative(a)), mode);
}
template <class F> F min3_num(F a, F b, F c, const Mode& mode) { return min_num(min_num(a, b, mode), c, mode); }
template <class F> F max3_num(F a, F b, F c, const Mode& mode) { return max_num(max_num(a, b, mode), c, mode); }

template <class F> F med3_num(F a, F b, F c, const Mode& mode) {
  if (is_nan(a) || is_nan(b) || is_nan(c)) return min3_num(a, b, c, mode);
  const F top = max3_num(a, b, c, mode);
  return top == a ? max_num(b, c, mode) : top == b ? max_num(a, c, mode) : max_num(a, b, mode);
}

// IEEE 754-2019 minimum and maximum: any NaN wins.
template <class F> F minimum(F a, F b) {
  const F r = a < b || (a == b && is_negative(a)) ? a : b;
  return is_nan(a) ? quieten(a) : is_nan(b) ? quieten(b) : r;
}
template <class F> F maximum(F a, F b) {
  const F r = a > b || (a == b && !is_negative(a)) ? a : b;
  return is_nan(a) ? quieten(a) : is_nan(b) ? quieten(b) : r;
}
template <class F> F minimum3(F a, F b, F c) { return minimum(minimum(a, b), c); }
template <class F> F maximum3(F a, F b, F c) { return maximum(maximum(a, b), c); }

}  // namespace arith
