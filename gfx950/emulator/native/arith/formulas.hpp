// Integer formulas that operations of several widths and the packed ones share. Sums are exact; Saturated results cut them.
#pragma once
#include <cstdint>

namespace arith {

inline constexpr auto kAdd = [](auto a, auto b) { return int64_t{a} + b; };
inline constexpr auto kSub = [](auto a, auto b) { return int64_t{a} - b; };
inline constexpr auto kSubRev = [](auto a, auto b) { return int64_t{b} - a; };
inline constexpr auto kMad = [](auto a, auto b, auto c) { return int64_t{a} * b + c; };
inline constexpr auto kMin = [](auto a, auto b) { return a < b ? a : b; };
inline constexpr auto kMax = [](auto a, auto b) { return a < b ? b : a; };
inline constexpr auto kMin3 = [](auto a, auto b, auto c) { return kMin(kMin(a, b), c); };
inline constexpr auto kMax3 = [](auto a, auto b, auto c) { return kMax(kMax(a, b), c); };
inline constexpr auto kMed3 = [](auto a, auto b, auto c) { return kMax(kMin(a, b), kMin(kMax(a, b), c)); };

}  // namespace arith
