// From a decoded record to an executable instruction: its handler, its modifiers, its constants.
#include <bit>
#include <cstring>

#include "machine.hpp"
#include "vector.hpp"

namespace emu {
namespace {

using arith::SrcType;

bool is_constant(const Operand& o) { return o.kind >= OperandKind::Int && o.kind != OperandKind::Off; }

uint16_t to_f16(uint32_t f32) { return std::bit_cast<uint16_t>(_Float16(std::bit_cast<float>(f32))); }
uint64_t to_f64(uint32_t f32) {
  if (f32 == 0x3e22f983) return 0x3fc45f306dc9c882;  // 1 / (2 pi) is rounded for each width
  return std::bit_cast<uint64_t>(double(std::bit_cast<float>(f32)));
}
uint64_t sign_extend(uint32_t x) { return uint64_t(int64_t(int32_t(x))); }

// An operand's constant as a source of `type` sees it (CDNA3 ISA, "Inline constants" and "Literals").
uint64_t expand(const Operand& o, SrcType type) {
  bool is_float = o.kind == OperandKind::Float, literal = o.kind == OperandKind::Literal;
  switch (type) {
    case SrcType::B16: case SrcType::F16: case SrcType::PackedB16: case SrcType::PackedF16:
      return is_float ? to_f16(o.value) : o.value;
    case SrcType::BF16: case SrcType::PackedBF16: return is_float ? o.value >> 16 : o.value;
    case SrcType::F64: return is_float ? to_f64(o.value) : literal ? uint64_t(o.value) << 32 : sign_extend(o.value);
    case SrcType::B64: return is_float ? to_f64(o.value) : literal ? o.value : sign_extend(o.value);
    case SrcType::PackedF32: return o.value | uint64_t(o.value) << 32;
    default: return o.value;
  }
}

const arith::Lanes* constant_lanes(Program& program, uint64_t value, int words, bool wide) {
  program.constants.emplace_back(new (std::align_val_t(64)) arith::Lanes[words]);
  arith::Lanes* lanes = program.constants.back().get();
  for (int k = 0; k < words; k++)
    for (int l = 0; l < arith::kLanes; l++) lanes[k][l] = uint32_t(wide && k % 2 ? value >> 32 : value);
  return lanes;
}

bool wide_type(SrcType type) { return type == SrcType::F64 || type == SrcType::B64 || type == SrcType::PackedF32; }

void prepare_vector_constants(Program& program, Inst& i) {
  for (int k = i.dst_count; k < i.operand_count; k++) {
    const Operand& o = i.operands[k];
    if (!is_constant(o)) continue;
    int n = k - i.dst_count;
    SrcType type = SrcType::B32;
    int words = 1;
    if (i.op && i.op->kind == arith::Kind::Mfma && n == 2 && !i.op->mfma.sparse) {
      type = i.op->mfma.a == arith::Element::F64 ? SrcType::F64 : SrcType::F32;
      words = i.op->dst_words;
    } else if (i.op && n < i.op->src_count) {
      type = i.op->src_type[n], words = i.op->src_words[n];
      if (type == SrcType::Mix) type = i.modifiers.op_sel_hi >> n & 1 ? SrcType::F16 : SrcType::F32;
    }
    i.constant[k] = constant_lanes(program, expand(o, type), words, wide_type(type));
  }
}

void prepare_scalar_constants(Inst& i, const std::string& name) {
  bool wide = name.ends_with("64"), sign = name.ends_with("i64");
  for (int k = 0; k < i.operand_count; k++) {
    const Operand& o = i.operands[k];
    if (!is_constant(o)) continue;
    i.imm[k] = wide ? expand(o, SrcType::B64) : o.value;
    if (wide && sign && o.kind == OperandKind::Literal) i.imm[k] = sign_extend(o.value);
  }
}

void prepare_modifiers(Inst& i, const std::string& name) {
  arith::Modifiers& m = i.modifiers;
  m.neg = i.neg, m.neg_hi = i.neg_hi, m.op_sel = i.op_sel, m.op_sel_hi = i.op_sel_hi, m.omod = i.omod;
  m.clamp = i.flags & kClamp;
  m.cbsz = i.cbsz, m.abid = i.abid, m.blgp = i.blgp, m.bitop3 = i.bitop3;
  uint8_t abs = 0;
  for (int k = i.dst_count; k < i.operand_count; k++) {
    uint8_t bit = uint8_t(1 << (k - i.dst_count));
    if (i.operands[k].flags & kNeg) m.neg |= bit;
    if (i.operands[k].flags & kAbs) abs |= bit;
  }
  (name.starts_with("v_fma_mix") ? m.neg_hi : m.abs) |= abs;
}

Handler find(Inst& i, const std::string& name) {
  if (Handler found = find_scalar(name)) return found;
  if (Handler found = find_scalar_memory(i, name)) return found;
  if (Handler found = find_vector(i, name)) return found;
  if (Handler found = find_memory(i, name)) return found;
  return find_lds(i, name);
}

}  // namespace

void prepare(Program& program, Inst& i) {
  const std::string& name = program.names[i.name];
  i.run = i.operand_count == kUndecoded ? nullptr : find(i, name);
  program.unimplemented.push_back(!i.run);
  if (!i.run) {
    i.run = run_unimplemented;
    return;
  }
  i.vector = !name.starts_with("s_");
  if (name == "s_nop") i.wait_states = uint8_t((i.word0 & 15) + 1);
  if (i.flags & kDpp) prepare_dpp(i);
  prepare_modifiers(i, name);
  prepare_vector_constants(program, i);
  prepare_scalar_constants(i, name);
}

}  // namespace emu
