// f16 formulas shared by the single and the packed operations. Values are f16 numbers held in floats.
#pragma once
#include <bit>
#include <cmath>

#include "minmax.hpp"

namespace arith {

constexpr float kBelowOneF16 = 0x1.ffcp-1f;

// a * b + c with one rounding to f16: the product is exact in f32, the sum is rounded to odd, which makes the final
// rounding to f16 see whether anything was lost.
inline float fma_f16(float a, float b, float c) {
  const float p = a * b;
  const float s = p + c;
  const float b_part = s - p, error = (p - (s - b_part)) + (c - b_part);  // s + error = p + c exactly
  const uint32_t bits = std::bit_cast<uint32_t>(s);
  const bool adjust = error != 0 && !(bits & 1) && std::isfinite(s);
  const bool away = (error > 0) == (s > 0);
  return std::bit_cast<float>(bits + (adjust ? away ? 1u : ~0u : 0u));
}

}  // namespace arith
