// The list of matrix operations, and how poison travels through them.
#include <cstring>

#include "family.hpp"
#include "matrix.hpp"

namespace arith {
namespace {

constexpr int element_bits(Element e) {
  switch (e) {
    case Element::F64: return 64;
    case Element::F32: return 32;
    case Element::F16: case Element::BF16: return 16;
    default: return 8;
  }
}

Op mfma_op(const char* name, MfmaShape shape) {
  const Layout layout(shape);
  const int a_values = shape.sparse ? layout.per_lane / 2 : layout.per_lane;
  Op op{};
  op.name = name;
  op.kind = Kind::Mfma;
  op.mfma = shape;
  op.dst_words = static_cast<uint8_t>(shape.m * shape.n * shape.blocks / 64 * (layout.wide ? 2 : 1));
  op.src_count = 3;
  op.src_words[0] = static_cast<uint8_t>(a_values * element_bits(shape.a) / 32);
  op.src_words[1] = static_cast<uint8_t>(layout.per_lane * element_bits(shape.b) / 32);
  op.src_words[2] = shape.sparse ? 1 : op.dst_words;
  op.src_type[0] = op.src_type[1] = SrcType::Wide;
  op.src_type[2] = layout.wide ? SrcType::F64 : shape.a == Element::I8 ? SrcType::B32 : SrcType::F32;
  op.reads_dst = shape.sparse;
  return op;
}

Op dense(const char* name, int m, int k, int blocks, Element a, Element b) {
  return mfma_op(name, {static_cast<uint8_t>(m), static_cast<uint8_t>(m), static_cast<uint8_t>(k),
                        static_cast<uint8_t>(blocks), a, b, false, false});
}
Op dense(const char* name, int m, int k, int blocks, Element e) { return dense(name, m, k, blocks, e, e); }
Op scaled(const char* name, int m, int k) {
  Op op = dense(name, m, k, 1, Element::F8F6F4);
  op.mfma.scaled = true;
  return op;
}
Op sparse(const char* name, int m, int k, Element a, Element b) {
  return mfma_op(name, {static_cast<uint8_t>(m), static_cast<uint8_t>(m), static_cast<uint8_t>(k), 1, a, b, true, false});
}

// Lanes of an operand that hold any poison under `mask` in their first `words` words.
uint64_t poisoned(const Lanes* s, int words, uint32_t mask = 0xffffffff) {
  if (!s) return 0;
  uint64_t lanes = 0;
  for (int w = 0; w < words; ++w)
    for (int lane = 0; lane < kLanes; ++lane) lanes |= uint64_t{(s[w][lane] & mask) != 0} << lane;
  return lanes;
}

int operand_words(const Op& op, const Modifiers& m, int source) {
  if (op.mfma.a != Element::F8F6F4) return op.src_words[source];
  const int format = source ? m.blgp : m.cbsz;
  return format < 2 ? 8 : format < 4 ? 6 : 4;
}

struct PoisonedSides {
  uint64_t a_lanes, b_lanes;

  PoisonedSides(const Op& op, const Lanes* a, const Lanes* b, const Lanes* extra0, const Lanes* extra1, const Modifiers& m)
      : a_lanes(poisoned(a, operand_words(op, m, 0))), b_lanes(0) {
    const uint64_t b_raw = poisoned(b, operand_words(op, m, 1));
    const int blgp = has_broadcasts(op.mfma) ? m.blgp : 0;
    for (int lane = 0; lane < kLanes; ++lane) b_lanes |= (b_raw >> permuted_lane(lane, blgp) & 1) << lane;
    a_lanes |= poisoned(extra0, 1, op.mfma.scaled ? 255u << scale_shift(0, m) : 0xffffffff);
    b_lanes |= poisoned(extra1, 1, 255u << scale_shift(1, m));
  }
};

// Rows of A (or columns of B) of a block of which any lane group's share is poisoned, one bit each.
uint32_t poisoned_rows(uint64_t lanes, const Layout& layout, int block) {
  uint32_t rows = 0;
  for (int group = 0; group < layout.groups; ++group)
    for (int row = 0; row < layout.side; ++row)
      rows |= static_cast<uint32_t>(lanes >> layout.source_lane(block, group, row) & 1) << row;
  return rows;
}

}  // namespace

void mfma_shadow(const Op& op, Lanes* d, const Lanes* a, const Lanes* b, const Lanes* c, const Lanes* extra0,
                 const Lanes* extra1, const Modifiers& m) {
  const Layout layout(op.mfma);
  const PoisonedSides sides(op, a, b, extra0, extra1, m);
  const int words = layout.wide ? 2 : 1;
  for (int block = 0; block < layout.blocks; ++block) {
    const int a_block = has_broadcasts(op.mfma) ? broadcast_block(block, layout.blocks, m) : block;
    const uint32_t rows = poisoned_rows(sides.a_lanes, layout, a_block), columns = poisoned_rows(sides.b_lanes, layout, block);
    for (int i = 0; i < layout.side; ++i) {
      const auto [reg, lane] = result_place(layout.side, layout.wide, block, i);
      for (int n = 0; n < layout.side; ++n) {
        uint32_t poison = (rows >> i | columns >> n) & 1 ? ~0u : 0;
        for (int w = 0; c && w < words; ++w) poison |= c[reg * words + w][lane + n] ? ~0u : 0;
        for (int w = 0; w < words; ++w) d[reg * words + w][lane + n] = poison;
      }
    }
  }
}

OpList mfma_ops() {
  using enum Element;
  return {
      dense("v_mfma_f64_16x16x4_f64", 16, 4, 1, F64),
      dense("v_mfma_f64_4x4x4_4b_f64", 4, 4, 4, F64),

      dense("v_mfma_f32_32x32x1_2b_f32", 32, 1, 2, F32),
      dense("v_mfma_f32_16x16x1_4b_f32", 16, 1, 4, F32),
      dense("v_mfma_f32_4x4x1_16b_f32", 4, 1, 16, F32),
      dense("v_mfma_f32_32x32x2_f32", 32, 2, 1, F32),
      dense("v_mfma_f32_16x16x4_f32", 16, 4, 1, F32),

      dense("v_mfma_f32_32x32x4_2b_f16", 32, 4, 2, F16),
      dense("v_mfma_f32_16x16x4_4b_f16", 16, 4, 4, F16),
      dense("v_mfma_f32_4x4x4_16b_f16", 4, 4, 16, F16),
      dense("v_mfma_f32_32x32x8_f16", 32, 8, 1, F16),
      dense("v_mfma_f32_16x16x16_f16", 16, 16, 1, F16),
      dense("v_mfma_f32_32x32x16_f16", 32, 16, 1, F16),
      dense("v_mfma_f32_16x16x32_f16", 16, 32, 1, F16),

      dense("v_mfma_f32_32x32x4_2b_bf16", 32, 4, 2, BF16),
      dense("v_mfma_f32_16x16x4_4b_bf16", 16, 4, 4, BF16),
      dense("v_mfma_f32_4x4x4_16b_bf16", 4, 4, 16, BF16),
      dense("v_mfma_f32_32x32x8_bf16", 32, 8, 1, BF16),
      dense("v_mfma_f32_16x16x16_bf16", 16, 16, 1, BF16),
      dense("v_mfma_f32_32x32x16_bf16", 32, 16, 1, BF16),
      dense("v_mfma_f32_16x16x32_bf16", 16, 32, 1, BF16),

      dense("v_mfma_i32_32x32x4_2b_i8", 32, 4, 2, I8),
      dense("v_mfma_i32_16x16x4_4b_i8", 16, 4, 4, I8),
      dense("v_mfma_i32_4x4x4_16b_i8", 4, 4, 16, I8),
      dense("v_mfma_i32_32x32x16_i8", 32, 16, 1, I8),
      dense("v_mfma_i32_16x16x32_i8", 16, 32, 1, I8),
      dense("v_mfma_i32_32x32x32_i8", 32, 32, 1, I8),
      dense("v_mfma_i32_16x16x64_i8", 16, 64, 1, I8),

      dense("v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 1, FP8, FP8),
      dense("v_mfma_f32_32x32x16_fp8_bf8", 32, 16, 1, FP8, BF8),
      dense("v_mfma_f32_32x32x16_bf8_fp8", 32, 16, 1, BF8, FP8),
      dense("v_mfma_f32_32x32x16_bf8_bf8", 32, 16, 1, BF8, BF8),
      dense("v_mfma_f32_16x16x32_fp8_fp8", 16, 32, 1, FP8, FP8),
      dense("v_mfma_f32_16x16x32_fp8_bf8", 16, 32, 1, FP8, BF8),
      dense("v_mfma_f32_16x16x32_bf8_fp8", 16, 32, 1, BF8, FP8),
      dense("v_mfma_f32_16x16x32_bf8_bf8", 16, 32, 1, BF8, BF8),

      dense("v_mfma_f32_16x16x128_f8f6f4", 16, 128, 1, F8F6F4),
      dense("v_mfma_f32_32x32x64_f8f6f4", 32, 64, 1, F8F6F4),
      scaled("v_mfma_scale_f32_16x16x128_f8f6f4", 16, 128),
      scaled("v_mfma_scale_f32_32x32x64_f8f6f4", 32, 64),

      sparse("v_smfmac_f32_16x16x32_f16", 16, 32, F16, F16),
      sparse("v_smfmac_f32_32x32x16_f16", 32, 16, F16, F16),
      sparse("v_smfmac_f32_16x16x64_f16", 16, 64, F16, F16),
      sparse("v_smfmac_f32_32x32x32_f16", 32, 32, F16, F16),
      sparse("v_smfmac_f32_16x16x32_bf16", 16, 32, BF16, BF16),
      sparse("v_smfmac_f32_32x32x16_bf16", 32, 16, BF16, BF16),
      sparse("v_smfmac_f32_16x16x64_bf16", 16, 64, BF16, BF16),
      sparse("v_smfmac_f32_32x32x32_bf16", 32, 32, BF16, BF16),
      sparse("v_smfmac_i32_16x16x64_i8", 16, 64, I8, I8),
      sparse("v_smfmac_i32_32x32x32_i8", 32, 32, I8, I8),
      sparse("v_smfmac_i32_16x16x128_i8", 16, 128, I8, I8),
      sparse("v_smfmac_i32_32x32x64_i8", 32, 64, I8, I8),

      sparse("v_smfmac_f32_16x16x64_fp8_fp8", 16, 64, FP8, FP8),
      sparse("v_smfmac_f32_16x16x64_fp8_bf8", 16, 64, FP8, BF8),
      sparse("v_smfmac_f32_16x16x64_bf8_fp8", 16, 64, BF8, FP8),
      sparse("v_smfmac_f32_16x16x64_bf8_bf8", 16, 64, BF8, BF8),
      sparse("v_smfmac_f32_32x32x32_fp8_fp8", 32, 32, FP8, FP8),
      sparse("v_smfmac_f32_32x32x32_fp8_bf8", 32, 32, FP8, BF8),
      sparse("v_smfmac_f32_32x32x32_bf8_fp8", 32, 32, BF8, FP8),
      sparse("v_smfmac_f32_32x32x32_bf8_bf8", 32, 32, BF8, BF8),
      sparse("v_smfmac_f32_16x16x128_fp8_fp8", 16, 128, FP8, FP8),
      sparse("v_smfmac_f32_16x16x128_fp8_bf8", 16, 128, FP8, BF8),
      sparse("v_smfmac_f32_16x16x128_bf8_fp8", 16, 128, BF8, FP8),
      sparse("v_smfmac_f32_16x16x128_bf8_bf8", 16, 128, BF8, BF8),
      sparse("v_smfmac_f32_32x32x64_fp8_fp8", 32, 64, FP8, FP8),
      sparse("v_smfmac_f32_32x32x64_fp8_bf8", 32, 64, FP8, BF8),
      sparse("v_smfmac_f32_32x32x64_bf8_fp8", 32, 64, BF8, FP8),
      sparse("v_smfmac_f32_32x32x64_bf8_bf8", 32, 64, BF8, BF8),
  };
}

}  // namespace arith
