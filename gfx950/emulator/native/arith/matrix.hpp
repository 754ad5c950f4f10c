// Where the elements of matrix operands lie in registers and lanes.
//
// A is M x K, B is K x N, C and D are M x N, in `blocks` independent products. Source of the general layout: AMD's matrix
// instruction calculator. A lane of A belongs to row l % M of block l / M % blocks, and lane group l / (M blocks) holds
// k = group * per_lane ... ; B likewise with columns.
#pragma once
#include "arith.hpp"
#include "assumptions.hpp"

namespace arith {

struct Layout {
  int side, k, blocks, groups, per_lane;  // side = M = N; per_lane: k values in each lane of a dense operand
  bool wide;                              // f64 results

  explicit Layout(const MfmaShape& s)
      : side(s.m), k(s.k), blocks(s.blocks), groups(64 / (s.m * s.blocks)), per_lane(s.k / groups),
        wide(s.a == Element::F64) {}

  int source_lane(int block, int group, int row) const { return (group * blocks + block) * side + row; }
};

// Register (in results, not words) and first lane of row i of a block of D; the row's columns are consecutive lanes. Rows go
// four to a register group, f64 rows one by one. Fast where side and wide are compile-time constants.
struct ResultPlace {
  int reg, lane;
};
inline ResultPlace result_place(int side, bool wide, int block, int i) {
  const bool together = !wide && holds(side == 16 ? kRows16 : kRows32);
  const int height = together ? 4 : 1, rows_across = 64 / side;
  const int blocks_across = (64 * height + side * side - 1) / (side * side);
  return {block * (side * side / 64) + i / (height * rows_across) * height + i % height,
          (block % blocks_across) * side + (i / height % rows_across) * blocks_across * side};
}

// v_mfma with cbsz: the block of A that block `block` uses instead of its own.
inline int broadcast_block(int block, int blocks, const Modifiers& m) {
  return ((block >> m.cbsz << m.cbsz) + m.abid) % blocks;
}

// v_mfma with blgp: the lane of B that is read in place of `lane`.
inline int permuted_lane(int lane, int blgp) {
  switch (blgp) {
    case 1: return lane % 32;         // lanes 0-31 for both halves
    case 2: return lane % 32 + 32;    // lanes 32-63 for both halves
    case 3: return (lane + 16) % 64;  // rotated by 16
    case 4: case 5: case 6: case 7: return lane % 16 + 16 * (blgp - 4);  // one group of 16 for all
    default: return lane;
  }
}

inline bool has_broadcasts(const MfmaShape& s) {
  return !s.sparse && s.a != Element::F64 && s.a != Element::F8F6F4;
}

// k of the j-th value in lane group g of an F8F6F4 operand. 8-bit operands come as two runs of 16 k.
inline int f8f6f4_k(int format, int group, int j, int k_total) {
  const bool two_runs = format < 2 ? holds(kFp8TwoRuns) : format == 4 && !holds(kFp4Consecutive);
  return two_runs ? (j / 16) * (k_total / 2) + 16 * group + j % 16 : 32 * group + j;
}

// The lane group whose scale belongs to k.
inline int scale_group(int k, int k_total) { return holds(kScaleLaneGroup) ? k / 32 : k_total / 32 - 1 - k / 32; }

// The byte of a scale register that op_sel picks for A (0) or B (1).
inline int scale_shift(int operand, const Modifiers& m) {
  return !holds(kScaleByte) ? 0 : 8 * ((m.op_sel >> operand & 1) | (m.op_sel_hi >> operand & 1) << 1);
}

// Position, in its group of four, of the e-th value stored by a lane of a sparse A. The index register of the lane holds
// two bits per stored value; if they need not fill it, abid picks the set (unless cbsz says to use the first).
inline int sparse_position(uint32_t index, int e, int stored, const Modifiers& m) {
  const int set_bits = 2 * stored, sets = 32 / set_bits;
  const int set = m.cbsz == 0 ? m.abid % sets : 0;
  return index >> (set * set_bits + 2 * e) & 3;
}

}  // namespace arith
