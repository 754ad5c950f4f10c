// Conversions between f16, bf16 and f32, and between the two halves of a register.
#pragma once
#include <bit>
#include <cstdint>

namespace arith {

inline float half_to_float(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
// Rounds in the host's current direction.
inline uint16_t float_to_half(float x) { return std::bit_cast<uint16_t>(static_cast<_Float16>(x)); }

// The same, but finite numbers stay finite.
inline uint16_t limited_half(float x) {
  const uint16_t bits = float_to_half(x);
  const bool overflowed = (bits & 0x7fff) == 0x7c00 && std::bit_cast<uint32_t>(x) << 1 != 0xff000000;
  return overflowed ? bits - 1 : bits;
}

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
// Nearest even; a NaN keeps its sign and the top of its payload and becomes quiet.
inline uint16_t float_to_bf16(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(x != x ? bits >> 16 | 0x40 : rounded);
}

inline uint32_t pack_halves(uint32_t low, uint32_t high) { return (low & 0xffff) | high << 16; }

}  // namespace arith
