// Vector ALU: fetches sources, lets arith compute 64 lanes, writes under EXEC. DPP and SDWA are variations of the fetch.
#include <unordered_map>

#include "operands.hpp"
#include "vector.hpp"

namespace emu {

namespace {

using arith::Kind;
using arith::Op;

constexpr int kMaxResult = 32;  // words: v_mfma_f32_32x32x4_2b has 32, v_cvt_scalef32_pk32_f32_* too

// --- DPP and SDWA -----------------------------------------------------------------------------------------------------------
// Moves the lanes of source 0. A lane without a source is written only with bound_ctrl, which makes it read 0.
uint64_t apply_dpp(Wave& w, const Inst& i, int words, VectorSource& s) {
  uint64_t valid = 0;
  for (int l = 0; l < kLanes; l++) {
    int from = i.lane_map[l];
    valid |= uint64_t(from >= 0 && w.exec >> from & 1) << l;
  }
  for (int k = 0; k < words; k++)
    for (int l = 0; l < kLanes; l++) {
      bool ok = valid >> l & 1;
      s.temp[k][l] = ok ? s.value[k][i.lane_map[l]] : 0;
      s.temp_shadow[k][l] = ok && s.shadow ? s.shadow[k][i.lane_map[l]] : 0;
    }
  s.value = s.temp;
  if (s.shadow) s.shadow = s.temp_shadow;
  return i.dpp_enable & (i.flags & kBoundCtrl ? ~0ull : valid);
}

uint32_t select_part(uint32_t x, int select, bool sign) {
  if (select == 6) return x;
  int bits = select < 4 ? 8 : 16, shift = select < 4 ? 8 * select : 16 * (select - 4);
  uint32_t part = x >> shift & ((1u << bits) - 1);
  return sign ? uint32_t(int32_t(part << (32 - bits)) >> (32 - bits)) : part;
}

void apply_sdwa_source(const Inst& i, int source, int k, VectorSource& s) {
  int select = i.src_sel[source];
  bool sign = i.operands[k].flags & kSext;
  for (int l = 0; l < kLanes; l++) {
    uint32_t value = s.value[0][l], shadow = s.shadow ? s.shadow[0][l] : 0;
    s.temp[0][l] = select_part(value, select, sign);
    s.temp_shadow[0][l] = select_part(shadow, select, sign);
  }
  s.value = s.temp;
  if (s.shadow) s.shadow = s.temp_shadow;
}

// Places the result in the selected part of the old destination.
void apply_sdwa_result(const Inst& i, Lanes& d, Lanes* shadow, const Lanes& old, const Lanes& old_shadow) {
  if (i.dst_sel == 6) return;
  int bits = i.dst_sel < 4 ? 8 : 16, shift = i.dst_sel < 4 ? 8 * i.dst_sel : 16 * (i.dst_sel - 4);
  uint32_t mask = ((1u << bits) - 1) << shift;
  for (int l = 0; l < kLanes; l++) {
    uint32_t part = d[l] << shift & mask, rest = 0, rest_shadow = 0;
    if (i.dst_unused == 1 && int32_t(d[l] << (32 - bits)) < 0) rest = ~(mask | (mask - 1));  // sign above, zero below
    if (i.dst_unused == 2) rest = old[l] & ~mask, rest_shadow = old_shadow[l] & ~mask;
    if (shadow) (*shadow)[l] = ((*shadow)[l] << shift & mask) | rest_shadow;
    d[l] = part | rest;
  }
}

// --- one instruction's sources -------------------------------------------------------------------------------------------------
struct Sources {
  VectorSource s[3];
  const Lanes* value[3] = {};
  bool poisoned = false;
  uint64_t enable = ~0ull;

  Sources(Wave& w, const Inst& i) {
    const Op& op = *i.op;
    for (int n = 0; n < op.src_count; n++) {
      int k = i.dst_count + n;
      fetch_vector(w, i, k, op.src_words[n], 1 << n, source_mask(w, i, n), s[n]);
      if (i.flags & kDpp && n == 0) enable = apply_dpp(w, i, op.src_words[0], s[0]);
      if (i.flags & kSdwa && n < 2) apply_sdwa_source(i, n, k, s[n]);
      value[n] = s[n].value;
      poisoned |= s[n].shadow != nullptr;
    }
  }
  static uint64_t source_mask(Wave& w, const Inst& i, int n) { return i.flags & kDpp && n == 0 ? ~0ull : w.exec; }

  arith::Operands operands() const {
    arith::Operands o;
    for (int n = 0; n < 3; n++) o.value[n] = s[n].value, o.shadow[n] = s[n].shadow;
    return o;
  }
};

int destination(Wave& w, const Inst& i) {
  int index = i.operands[0].index;
  if (w.gpr_index_on && w.index_mode() & kIndexDst) [[unlikely]] {
    index += w.s[kM0] & 255;
    check_vgpr_range(w, index, i.op->dst_words);
  }
  return index;
}

struct Result {
  Lanes value[kMaxResult];
  Lanes shadow[kMaxResult];
};

// Makes room for the old destination where the operation or SDWA keeps some of it. True if that is poisoned.
bool load_old(Wave& w, const Inst& i, int index, Result& r) {
  if (!i.op->reads_dst) return false;
  for (int k = 0; k < i.op->dst_words; k++) memcpy(r.value[k], w.v[index + k], sizeof(Lanes));
  if (vector_state(w, index, i.op->dst_words) & kInFlight) [[unlikely]]
    for (int k = 0; k < i.op->dst_words; k++) report_in_flight(w, true, index + k, w.exec, false);
  return vector_state(w, index, i.op->dst_words) & kPoisoned;
}

void store_result(Wave& w, const Inst& i, int index, Result& r, bool poisoned, uint64_t enable) {
  if (i.flags & kSdwa) {
    bool keeps = i.dst_unused == 2 && i.dst_sel != 6 && w.vstate[index] & kPoisoned;
    if (keeps && !poisoned) memset(r.shadow[0], 0, sizeof(Lanes)), poisoned = true;
    apply_sdwa_result(i, r.value[0], poisoned ? &r.shadow[0] : nullptr, w.v[index], w.shadow[index]);
  }
  write_vector(w, index, i.op->dst_words, r.value, poisoned ? r.shadow : nullptr, w.exec & enable);
}

void run_lane(Wave& w, const Inst& i) {
  Sources src(w, i);
  int index = destination(w, i);
  Result r;
  bool poisoned = src.poisoned | load_old(w, i, index, r);
  if (poisoned) [[unlikely]] {
    arith::Operands o = src.operands();
    if (i.op->reads_dst) o.dst_shadow = w.shadow + index;
    arith::shadow(*i.op, r.shadow, o, i.modifiers);
  }
  i.op->lane(r.value, src.value[0], src.value[1], src.value[2], i.modifiers, w.mode);
  store_result(w, i, index, r, poisoned, src.enable);
}

// Carries, v_cndmask, v_div_scale, v_div_fmas: a lane mask goes in or out or both.
void run_mask(Wave& w, const Inst& i) {
  Sources src(w, i);
  const Op& op = *i.op;
  Scalar in{0, 0};
  if (op.mask_in) {
    int k = i.dst_count + op.src_count;
    in = k < i.operand_count ? read_scalar(w, i, k, 2) : read_sgpr(w, kVcc, 2);
  }
  in.shadow &= w.exec;
  int index = destination(w, i);
  Result r;
  bool poisoned = src.poisoned | (in.shadow != 0) | load_old(w, i, index, r);
  uint64_t out_shadow = 0;
  if (poisoned) [[unlikely]] {
    arith::Operands o = src.operands();
    o.mask = in.value, o.mask_shadow = in.shadow;
    if (op.reads_dst) o.dst_shadow = w.shadow + index;
    arith::shadow(op, r.shadow, o, i.modifiers);
    out_shadow = arith::poisoned_lanes(op, o, i.modifiers);
  }
  uint64_t mask = op.mask(r.value, src.value[0], src.value[1], src.value[2], in.value, i.modifiers, w.mode);
  store_result(w, i, index, r, poisoned, src.enable);
  if (!op.mask_out) return;
  uint64_t live = w.exec & src.enable;
  write_sgpr(w, i.dst_count > 1 ? i.operands[1].index : kVcc, 2, {mask & live, out_shadow & live});
}

template <bool kWritesExec> void run_compare(Wave& w, const Inst& i) {
  Sources src(w, i);
  uint64_t live = w.exec & src.enable, shadow = 0;
  if (src.poisoned) [[unlikely]] shadow = arith::poisoned_lanes(*i.op, src.operands(), i.modifiers) & live;
  uint64_t mask = i.op->compare(src.value[0], src.value[1], i.modifiers, w.mode) & live;
  write_sgpr(w, i.operands[0].index, 2, {mask, shadow});
  if (kWritesExec) write_exec(w, {mask, shadow});
}

// Matrix operations ignore EXEC.
void run_mfma(Wave& w, const Inst& i) {
  const Op& op = *i.op;
  static_assert(kMaxOperands >= 6);
  bool sparse = op.mfma.sparse;
  VectorSource s[5];
  const Lanes *value[5] = {}, *shadow[5] = {};
  bool poisoned = false;
  auto fetch = [&](int slot, int k, int words) {
    fetch_vector(w, i, k, words, 0, ~0ull, s[slot]);
    value[slot] = s[slot].value, shadow[slot] = s[slot].shadow;
    poisoned |= shadow[slot] != nullptr;
  };
  int a_words = matrix_words(op, i.modifiers, 0), b_words = matrix_words(op, i.modifiers, 1);
  fetch(0, 1, a_words);
  fetch(1, 2, b_words);
  fetch(2, sparse ? 0 : 3, op.dst_words);
  if (sparse) fetch(3, 3, 1);
  if (op.mfma.scaled && i.operand_count > 5) fetch(3, 4, 1), fetch(4, 5, 1);
  Result r;
  if (poisoned) arith::mfma_shadow(op, r.shadow, shadow[0], shadow[1], shadow[2], shadow[3], shadow[4], i.modifiers);
  arith::mfma(op, r.value, value[0], value[1], value[2], value[3], value[4], i.modifiers, w.mode);
  write_vector(w, i.operands[0].index, op.dst_words, r.value, poisoned ? r.shadow : nullptr, ~0ull);
}

}  // namespace

// Registers of A (0) or B (1): 6-bit and 4-bit formats use fewer than eight.
int matrix_words(const Op& op, const arith::Modifiers& m, int source) {
  arith::Element element = source ? op.mfma.b : op.mfma.a;
  if (element != arith::Element::F8F6F4) return op.src_words[source];
  int format = source ? m.blgp : m.cbsz;
  return format < 2 ? 8 : format < 4 ? 6 : 4;
}

static bool writes_carry_operand(const Inst& i, const Op& op) {
  return op.mask_out && i.operand_count >= 2 && i.operands[1].kind == OperandKind::Sgpr && i.operands[1].words == 2;
}

Handler find_vector(Inst& i, const std::string& name) {
  if (Handler lanes = find_lane_op(name)) return lanes;
  std::string base = name;
  bool cmpx = base.rfind("v_cmpx_", 0) == 0;
  const Op* op = arith::find(base.c_str());
  if (!op) return nullptr;
  i.op = op;
  i.dst_count = 1;
  switch (op->kind) {
    case Kind::Lane: return run_lane;
    case Kind::Mask: i.dst_count = writes_carry_operand(i, *op) ? 2 : 1; return run_mask;
    case Kind::Compare: return cmpx ? run_compare<true> : run_compare<false>;
    case Kind::Mfma: return run_mfma;
  }
  return nullptr;
}

}  // namespace emu
