// Poison rules of the lane operations; see shadow.hpp for what each one means.
#include "shadow.hpp"

#include <cstring>

#include "lanes.hpp"

namespace arith {
namespace poison {
namespace {

constexpr Lanes kZero[32] = {};

const Lanes* or_zero(const Lanes* s) { return s ? s : kZero; }

uint32_t read_mask(const Op& op, int source, const Modifiers& m) {
  return op.read_mask ? op.read_mask(source, m) : 0xffffffff;
}

// Poison lanes of one source, as a mask of all ones or zeros in each lane.
void add_poisoned(const Op& op, Lanes& lanes, const Operands& from, const Modifiers& m, int source) {
  const Lanes* shadow = from.shadow[source];
  if (!shadow) return;
  const uint32_t mask = read_mask(op, source, m);
  for (int w = 0; w < op.src_words[source]; ++w)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] |= shadow[w][lane] & mask ? ~0u : 0u;
}

// The destination's old value is read as a source (v_fmac), not only merged into (partial writes).
bool accumulates(const Op& op) { return op.reads_dst && !op.write_mask; }

void collect(const Op& op, Lanes& lanes, const Operands& from, const Modifiers& m) {
  std::memset(lanes, 0, sizeof(Lanes));
  for (int i = 0; i < op.src_count; ++i) add_poisoned(op, lanes, from, m, i);
  for (int lane = 0; lane < kLanes; ++lane)
    if (op.mask_in && from.mask_shadow >> lane & 1) lanes[lane] = ~0u;
  if (accumulates(op) && from.dst_shadow)
    for (int w = 0; w < op.dst_words; ++w)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] |= from.dst_shadow[w][lane] ? ~0u : 0u;
}

// Keeps the old poison of bits that the operation does not write.
void merge(const Op& op, Lanes* shadow, const Operands& from, const Modifiers& m) {
  if (!op.write_mask) return;
  const uint32_t written = op.write_mask(0, m);
  const Lanes* old = or_zero(from.dst_shadow);
  for (int w = 0; w < op.dst_words; ++w)
    for (int lane = 0; lane < kLanes; ++lane)
      shadow[w][lane] = (shadow[w][lane] & written) | (old[w][lane] & ~written);
}

void apply_table(uint8_t table, Lanes* shadow, const Operands& from) {
  const Lanes* v[3] = {or_zero(from.value[0]), or_zero(from.value[1]), or_zero(from.value[2])};
  const Lanes* q[3] = {or_zero(from.shadow[0]), or_zero(from.shadow[1]), or_zero(from.shadow[2])};
  for (int lane = 0; lane < kLanes; ++lane) {
    uint32_t can_be[2] = {0, 0};
    for (int entry = 0; entry < 8; ++entry) {
      uint32_t possible = ~0u;
      for (int i = 0; i < 3; ++i) {
        const uint32_t bits = v[i][0][lane];
        possible &= (entry >> (2 - i) & 1 ? bits : ~bits) | q[i][0][lane];
      }
      can_be[table >> entry & 1] |= possible;
    }
    shadow[0][lane] = can_be[0] & can_be[1];
  }
}

// Poison bits of `source` moved down to the half that op_sel chose, so that 16-bit rules can work on the low half.
uint32_t selected(const Op& op, const Operands& from, const Modifiers& m, int source, int lane) {
  if (!from.shadow[source]) return 0;
  const uint32_t mask = read_mask(op, source, m);
  const uint32_t bits = from.shadow[source][0][lane] & mask;
  return mask == 0xffff0000 ? bits >> 16 : bits;
}

uint32_t half_of(uint8_t select, int source) { return select >> source & 1 ? 0xffff0000u : 0xffffu; }

uint64_t low_bits_clean(uint64_t poison) { return poison | (0 - poison); }

}  // namespace

void any(const Op& op, Lanes* shadow, const Operands& from, const Modifiers& m) {
  Lanes lanes;
  collect(op, lanes, from, m);
  for (int w = 0; w < op.dst_words; ++w) std::memcpy(shadow[w], lanes, sizeof(Lanes));
  merge(op, shadow, from, m);
}

template <uint8_t Table> void bitwise(const Op&, Lanes* shadow, const Operands& from, const Modifiers&) {
  apply_table(Table, shadow, from);
}
template void bitwise<0x0f>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void bitwise<0x3c>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void bitwise<0xc0>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void bitwise<0xc3>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void bitwise<0xca>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void bitwise<0xea>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void bitwise<0xfc>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void bitwise<0xfe>(const Op&, Lanes*, const Operands&, const Modifiers&);

void bitop3(const Op& op, Lanes* shadow, const Operands& from, const Modifiers& m) {
  if (op.write_mask) return any(op, shadow, from, m);  // the 16-bit form shifts halves about; rare
  apply_table(m.bitop3, shadow, from);
}

template <int DataMask> void moved(const Op& op, Lanes* shadow, const Operands& from, const Modifiers& m) {
  Lanes poisoned_control;
  std::memset(poisoned_control, 0, sizeof(Lanes));
  for (int i = 0; i < op.src_count; ++i)
    if (!(DataMask >> i & 1)) add_poisoned(op, poisoned_control, from, m, i);

  const Modifiers no_sign{.op_sel = m.op_sel, .op_sel_hi = m.op_sel_hi};
  auto run = [&](int data, Lanes* out) {  // the operation on zeros, or on the poison of source `data` and zeros elsewhere
    const Lanes* s[3];
    for (int i = 0; i < 3; ++i) {
      const bool is_data = DataMask >> i & 1;
      s[i] = i == data ? or_zero(from.shadow[i]) : is_data ? kZero : or_zero(from.value[i]);
    }
    std::memset(out, 0, op.dst_words * sizeof(Lanes));
    op.lane(out, s[0], s[1], s[2], no_sign, Mode{});
  };

  Lanes base[2], moved_bits[2];
  run(-1, base);
  for (int w = 0; w < op.dst_words; ++w) std::memcpy(shadow[w], poisoned_control, sizeof(Lanes));
  for (int i = 0; i < op.src_count; ++i) {
    if (!(DataMask >> i & 1) || !from.shadow[i]) continue;
    run(i, moved_bits);
    for (int w = 0; w < op.dst_words; ++w)
      for (int lane = 0; lane < kLanes; ++lane) shadow[w][lane] |= moved_bits[w][lane] ^ base[w][lane];
  }
  merge(op, shadow, from, m);
}
template void moved<1>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void moved<2>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void moved<3>(const Op&, Lanes*, const Operands&, const Modifiers&);

template <int Bits> void upward(const Op& op, Lanes* shadow, const Operands& from, const Modifiers& m) {
  if (m.clamp) return any(op, shadow, from, m);
  const Lanes* old = accumulates(op) ? or_zero(from.dst_shadow) : kZero;
  const int place = op.write_mask && (m.op_sel & 8) ? 16 : 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    uint64_t poison = op.mask_in && from.mask_shadow >> lane & 1;
    for (int i = 0; i < op.src_count; ++i) {
      poison |= selected(op, from, m, i, lane);
      if (op.src_words[i] == 2 && from.shadow[i]) poison |= uint64_t{from.shadow[i][1][lane]} << 32;
    }
    poison = low_bits_clean(poison | old[0][lane]) & (~uint64_t{0} >> (64 - Bits));
    shadow[0][lane] = static_cast<uint32_t>(poison << place);
    if (Bits == 64) shadow[1][lane] = static_cast<uint32_t>(poison >> 32);
  }
  merge(op, shadow, from, m);
}
template void upward<16>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void upward<32>(const Op&, Lanes*, const Operands&, const Modifiers&);
template void upward<64>(const Op&, Lanes*, const Operands&, const Modifiers&);

void lshl_add(const Op& op, Lanes* shadow, const Operands& from, const Modifiers&) {
  const Lanes* q[3] = {or_zero(from.shadow[0]), or_zero(from.shadow[1]), or_zero(from.shadow[2])};
  const bool wide = op.dst_words == 2;
  const uint32_t amount_mask = wide ? 7 : 31;
  auto amount = [&](uint32_t n) { return wide ? shift_of_lshl_add_u64(n) : n & 31; };
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t high0 = wide ? q[0][1][lane] : 0, high2 = wide ? q[2][1][lane] : 0;
    const uint64_t data = (q[0][0][lane] | high0 << 32) << amount(from.value[1][0][lane]);
    uint64_t poison = low_bits_clean(data | q[2][0][lane] | high2 << 32);
    if (q[1][0][lane] & amount_mask) poison = ~uint64_t{0};
    shadow[0][lane] = static_cast<uint32_t>(poison);
    if (wide) shadow[1][lane] = static_cast<uint32_t>(poison >> 32);
  }
}

void lshl_or(const Op&, Lanes* shadow, const Operands& from, const Modifiers&) {
  const Lanes* q[3] = {or_zero(from.shadow[0]), or_zero(from.shadow[1]), or_zero(from.shadow[2])};
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t amount = from.value[1][0][lane] & 31;
    const uint32_t q0 = q[0][0][lane] << amount, q2 = q[2][0][lane];
    const uint32_t surely_one = (from.value[0][0][lane] << amount & ~q0) | (from.value[2][0][lane] & ~q2);
    shadow[0][lane] = q[1][0][lane] & 31 ? ~0u : (q0 | q2) & ~surely_one;
  }
}

void packed_halves(const Op& op, Lanes* shadow, const Operands& from, const Modifiers& m) {
  const bool vop2 = accumulates(op);  // has no op_sel
  const uint8_t select_low = vop2 ? 0 : m.op_sel, select_high = vop2 ? 7 : m.op_sel_hi;
  for (int lane = 0; lane < kLanes; ++lane) {
    uint32_t low = 0, high = 0;
    for (int i = 0; i < op.src_count; ++i) {
      if (!from.shadow[i]) continue;
      const uint32_t q = from.shadow[i][0][lane];
      low |= q & half_of(select_low, i);
      high |= q & half_of(select_high, i);
    }
    if (vop2 && from.dst_shadow) {
      low |= from.dst_shadow[0][lane] & 0xffff;
      high |= from.dst_shadow[0][lane] >> 16;
    }
    shadow[0][lane] = (low ? 0xffffu : 0) | (high ? 0xffff0000u : 0);
  }
}

void packed_words(const Op& op, Lanes* shadow, const Operands& from, const Modifiers& m) {
  for (int lane = 0; lane < kLanes; ++lane) {
    uint32_t low = 0, high = 0;
    for (int i = 0; i < op.src_count; ++i) {
      if (!from.shadow[i]) continue;
      low |= from.shadow[i][m.op_sel >> i & 1][lane];
      high |= from.shadow[i][m.op_sel_hi >> i & 1][lane];
    }
    shadow[0][lane] = low ? ~0u : 0;
    shadow[1][lane] = high ? ~0u : 0;
  }
}

void half_per_source(const Op& op, Lanes* shadow, const Operands& from, const Modifiers& m) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t low = selected(op, from, m, 0, lane), high = selected(op, from, m, 1, lane);
    shadow[0][lane] = (low ? 0xffffu : 0) | (high ? 0xffff0000u : 0);
  }
}

void select(const Op&, Lanes* shadow, const Operands& from, const Modifiers&) {
  const Lanes *q0 = or_zero(from.shadow[0]), *q1 = or_zero(from.shadow[1]);
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t chosen = from.mask >> lane & 1 ? q1[0][lane] : q0[0][lane];
    shadow[0][lane] = from.mask_shadow >> lane & 1 ? ~0u : chosen;
  }
}

}  // namespace poison

void shadow(const Op& op, Lanes* shadow, const Operands& from, const Modifiers& m) {
  (op.shadow ? op.shadow : poison::any)(op, shadow, from, m);
}

uint64_t poisoned_lanes(const Op& op, const Operands& from, const Modifiers& m) {
  Lanes lanes;
  poison::collect(op, lanes, from, m);
  uint64_t mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) mask |= uint64_t{lanes[lane] & 1} << lane;
  return mask;
}

}  // namespace arith
