// Bit layouts of the IEEE formats and the host's rounding direction.
#pragma once
#include <cfenv>
#include <cstdint>

namespace arith {

constexpr uint32_t kSign32 = 0x80000000, kExponent32 = 0x7f800000, kQuiet32 = 0x00400000;
constexpr uint64_t kSign64 = uint64_t{1} << 63, kExponent64 = uint64_t{0x7ff} << 52, kQuiet64 = uint64_t{1} << 51;
constexpr uint16_t kSign16 = 0x8000, kExponent16 = 0x7c00, kQuiet16 = 0x0200;
constexpr uint16_t kExponentBf16 = 0x7f80;

// Sets the host's rounding direction from a MODE register field for the lifetime of the object. Vector code compiled for
// round-to-nearest follows the control register too, because no operand here is a compile-time constant.
class RoundingScope {
 public:
  explicit RoundingScope(uint8_t round) : active_(round != 0) {
    constexpr int kDirection[4] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    if (active_) std::fesetround(kDirection[round & 3]);
  }
  ~RoundingScope() {
    if (active_) std::fesetround(FE_TONEAREST);
  }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  bool active_;
};

}  // namespace arith
