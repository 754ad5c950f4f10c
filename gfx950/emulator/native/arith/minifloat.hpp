// The narrow floating-point formats of gfx950: OCP fp8 (e4m3fn), bf8 (e5m2), fp6 (e2m3), bf6 (e3m2), fp4 (e2m1).
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

#include "arith.hpp"
#include "float_mode.hpp"
#include "halves.hpp"

namespace arith {

// What the codes above the largest finite number mean.
enum class Specials : uint8_t { NanOnly, Ieee, None };  // e4m3fn: S.1111.111 is NaN; e5m2: inf and NaN; fp6, bf6, fp4: none

template <int ExponentBits, int MantissaBits, int Bias, Specials Kind> struct MiniFloat {
  static constexpr int kBits = 1 + ExponentBits + MantissaBits;
  static constexpr uint32_t kSign = 1u << (kBits - 1), kMagnitude = kSign - 1;
  static constexpr uint32_t kInfinity = ((1u << ExponentBits) - 1) << MantissaBits;  // Ieee only
  static constexpr uint32_t kMaxFinite =
      Kind == Specials::None ? kMagnitude : Kind == Specials::NanOnly ? kMagnitude - 1 : kInfinity - 1;
  // Codes of too large numbers and of NaN; formats that have neither take the largest number (as AMD's HIP headers do).
  static constexpr uint32_t kOverflow = Kind == Specials::Ieee ? kInfinity : kMagnitude;
  static constexpr uint32_t kNan = Kind == Specials::Ieee ? kInfinity | 1u << (MantissaBits - 1) : kMagnitude;

  // Exact. The code is moved into an f16 of the same shape, whose larger bias a factor makes up for.
  static float decode(uint32_t code) {
    const uint32_t magnitude = code & kMagnitude;
    const uint32_t half = (code & kSign) << (16 - kBits) | magnitude << (10 - MantissaBits);
    const float value = half_to_float(static_cast<uint16_t>(half)) * static_cast<float>(1 << (15 - Bias));
    if constexpr (Kind == Specials::NanOnly)
      return magnitude == kNan ? std::numeric_limits<float>::quiet_NaN() : value;
    return value;
  }

  // Nearest even; the host must round to nearest. `limit`: what overflows, infinities too, becomes the largest number.
  static uint32_t encode(float x, bool limit) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & ~kSign32;
    const uint32_t rounded = magnitude + ((1u << (kDropped - 1)) - 1) + (magnitude >> kDropped & 1);
    const float small = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kUnitAtLastBit);
    const uint32_t subnormal = std::bit_cast<uint32_t>(small) - kUnitAtLastBit;
    return finish(bits, magnitude < kMinNormal ? subnormal : (rounded >> kDropped) - kRebias, limit);
  }

  // Stochastic: |x| in units of the last place, plus the random number as a fraction (its top bits), rounded down.
  static uint32_t encode_stochastic(float x, uint32_t random, bool limit) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & ~kSign32;
    const uint32_t noise = random >> (32 - kDropped);
    const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t down = std::min((kMinNormal >> 23) - std::min(magnitude >> 23, kMinNormal >> 23), 31u);
    const uint32_t subnormal = ((mantissa >> down) + noise) >> kDropped;
    return finish(bits, magnitude < kMinNormal ? subnormal : ((magnitude + noise) >> kDropped) - kRebias, limit);
  }

 private:
  static constexpr int kDropped = 23 - MantissaBits;
  static constexpr uint32_t kMinNormal = static_cast<uint32_t>(127 + 1 - Bias) << 23;           // as f32 bits
  static constexpr uint32_t kUnitAtLastBit = static_cast<uint32_t>(127 + 1 - Bias + kDropped) << 23;  // ulp = smallest code
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Bias) << MantissaBits;

  static uint32_t finish(uint32_t bits, uint32_t code, bool limit) {
    const uint32_t magnitude = bits & ~kSign32;
    code = code > kMaxFinite || magnitude >= kExponent32 ? limit ? kMaxFinite : kOverflow : code;
    code = magnitude > kExponent32 ? kNan : code;
    return code | (bits & kSign32 ? kSign : 0);
  }
};

using Fp8 = MiniFloat<4, 3, 7, Specials::NanOnly>;
using Bf8 = MiniFloat<5, 2, 15, Specials::Ieee>;
using Fp6 = MiniFloat<2, 3, 1, Specials::None>;
using Bf6 = MiniFloat<3, 2, 3, Specials::None>;
using Fp4 = MiniFloat<2, 1, 1, Specials::None>;

// 2^(e - 127) of an E8M0 scale; 255 is NaN.
inline double e8m0(uint32_t byte) {
  return byte == 255 ? std::numeric_limits<double>::quiet_NaN()
                     : std::bit_cast<double>(static_cast<uint64_t>(byte + 1023 - 127) << 52);
}

// Bits [offset, offset + Bits) of the little-endian bit string that a lane's words form.
template <int Bits> uint32_t extract_bits(const Lanes* s, int lane, int offset) {
  const int word = offset / 32, shift = offset % 32;
  uint32_t value = s[word][lane] >> shift;
  if (shift + Bits > 32) value |= s[word + 1][lane] << (32 - shift);
  return Bits == 32 ? value : value & ((1u << Bits) - 1);
}
// Adds bits to a string that starts out as zeros.
template <int Bits> void deposit_bits(Lanes* d, int lane, int offset, uint32_t value) {
  const int word = offset / 32, shift = offset % 32;
  d[word][lane] |= value << shift;
  if (shift + Bits > 32) d[word + 1][lane] |= value >> (32 - shift);
}

inline uint32_t next_random(uint32_t x) { return x << 1 ^ (x >> 31 ? 197u : 0u); }  // v_prng_b32

}  // namespace arith
