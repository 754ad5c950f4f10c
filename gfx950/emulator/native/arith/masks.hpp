// Between 64-bit lane masks and one byte per lane.
#pragma once
#include <cstdint>
#include <cstring>

#include "arith.hpp"

namespace arith {

using LaneFlags = uint8_t[kLanes];  // 0 or 1

inline uint64_t pack_mask(const LaneFlags& flags) {
  uint64_t mask = 0;
  for (int group = 0; group < kLanes / 8; ++group) {
    uint64_t bytes;
    std::memcpy(&bytes, flags + 8 * group, 8);
    mask |= (bytes * 0x0102040810204080u >> 56) << 8 * group;  // gathers bit 0 of byte i into bit i
  }
  return mask;
}

inline void unpack_mask(uint64_t mask, LaneFlags& flags) {
  for (int lane = 0; lane < kLanes; ++lane) flags[lane] = mask >> lane & 1;
}

}  // namespace arith
