// Facts about data layouts that AMD's documents state loosely or not at all.
//
// Each can be inverted, for the whole process. Only the trust tests do that: kernels that other compilers made, and that
// are right on the hardware, must then compute wrong here; a fact whose inversion nothing notices would not be pinned.
#pragma once
#include <cstdint>

namespace arith {

// Bits of a set; the names are those of tests/gfx950/corpus/assumptions.py, in this order.
enum Assumption : uint32_t {
  kFp8TwoRuns = 1,          // an 8-bit F8F6F4 operand: two runs of 16 k in a lane; inverted: 32 consecutive k
  kFp4Consecutive = 2,      // a 4-bit F8F6F4 operand: 32 consecutive k in a lane; inverted: two runs of 16
  kScaleLaneGroup = 4,      // the scale of k block g is in lane group g; inverted: the groups in reverse order
  kScaleByte = 8,           // op_sel picks the byte of a scale register; inverted: always byte 0
  kRows16 = 16,             // 16x16 results: four consecutive rows in a lane; inverted: every fourth row
  kRows32 = 32,             // 32x32 results: the same; inverted: every second row
  kTransposedRead = 64,     // ds_read_*_tr_*: a lane receives a column; inverted: what it addressed
  kPermlaneSwap = 128,      // v_permlane*_swap: odd rows of vdst for even rows of src; inverted: odd for odd
  kLdsDmaLanes = 256,       // LDS-DMA: lane l writes at M0 base + l * size; inverted: lanes in reverse order
  kDppShiftDirection = 512  // row_shr: a lane receives a lower lane; inverted: a higher one
};

inline uint32_t inverted = 0;
inline bool holds(Assumption a) { return !(inverted & a); }

}  // namespace arith
