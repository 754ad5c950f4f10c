// Reading and writing registers, with the checks that come with it.
#pragma once
#include <cstring>

#include "machine.hpp"

namespace emu {

// --- scalar -------------------------------------------------------------------------------------------------------------
void report_in_flight(Wave&, bool vector, int index, uint64_t mask, bool write);

inline void check_scalar_read(Wave& w, int index, int words) {
  for (int k = 0; k < words; k++)
    if (w.sstate[index + k] & kInFlight) [[unlikely]] report_in_flight(w, false, index + k, ~0ull, false);
}

// A scalar value with its shadow.
struct Scalar {
  uint64_t value, shadow;
};

Scalar read_special(Wave&, int index, int words);  // apertures, VCCZ, EXECZ, SCC

inline Scalar read_sgpr(Wave& w, int index, int words) {
  if (index >= 235) [[unlikely]] return read_special(w, index, words);
  check_scalar_read(w, index, words);
  if (words == 1) return {w.s[index], w.sshadow[index]};
  return {w.s[index] | uint64_t(w.s[index + 1]) << 32, w.sshadow[index] | uint64_t(w.sshadow[index + 1]) << 32};
}

// Scalar source operand `k` as `words` 32-bit words.
inline Scalar read_scalar(Wave& w, const Inst& i, int k, int words) {
  const Operand& o = i.operands[k];
  if (o.kind == OperandKind::Sgpr) return read_sgpr(w, o.index, words);
  return {words == 1 ? uint32_t(i.imm[k]) : i.imm[k], 0};
}

void write_exec(Wave&, Scalar);
void write_sgpr_slow(Wave&, int index, int words);

inline void write_sgpr(Wave& w, int index, int words, Scalar x) {
  if (index == kExec && words == 2) return write_exec(w, x);
  for (int k = 0; k < words; k++) {
    if (w.sstate[index + k] & kInFlight) [[unlikely]] report_in_flight(w, false, index + k, ~0ull, true);
    w.s[index + k] = uint32_t(x.value >> 32 * k);
    w.sshadow[index + k] = uint32_t(x.shadow >> 32 * k);
  }
  if (index >= kExec) [[unlikely]] write_exec(w, {w.s[kExec] | uint64_t(w.s[kExec + 1]) << 32, x.shadow});
}

inline void write_scalar(Wave& w, const Inst& i, int k, int words, Scalar x) {
  write_sgpr(w, i.operands[k].index, words, x);
}

// A scalar that the machine itself uses (address, M0, descriptor): poison in it is reported and then ignored.
inline uint64_t need(Wave& w, Scalar x, FindingKind kind = FindingKind::PoisonScalar, int64_t detail = 0) {
  if (x.shadow) [[unlikely]] report(w, {.kind = kind, .detail = detail});
  return x.value;
}

// --- vector -------------------------------------------------------------------------------------------------------------
constexpr int kMaxTemp = 2;  // words of a source that must be materialised (scalars, DPP, SDWA)

struct VectorSource {
  const Lanes* value = nullptr;
  const Lanes* shadow = nullptr;  // null: no poison
  Lanes temp[kMaxTemp], temp_shadow[kMaxTemp];
};

inline void broadcast(Lanes& out, uint32_t x) {
  for (int l = 0; l < kLanes; l++) out[l] = x;
}

inline uint8_t vector_state(const Wave& w, int index, int words) {
  uint8_t state = 0;
  for (int k = 0; k < words; k++) state |= w.vstate[index + k];
  return state;
}

void check_vgpr_range(Wave&, int index, int words);

// Source operand `k`, `words` registers wide; `mask`: the lanes that matter to an in-flight report.
void fetch_vector(Wave&, const Inst&, int k, int words, int gpr_index_bit, uint64_t mask, VectorSource& out);

// The lanes of a vector operand that an address is made of: poison in an active lane is reported.
void need_lanes(Wave&, const VectorSource&, int word, uint64_t mask, FindingKind kind);

// Writes lanes of `mask` of `words` registers. `shadow` null: clean.
void write_vector(Wave&, int index, int words, const Lanes* value, const Lanes* shadow, uint64_t mask);

inline uint64_t lanes_set(const Lanes& x) {  // lanes whose word is not zero
  uint64_t mask = 0;
  for (int l = 0; l < kLanes; l++) mask |= uint64_t(x[l] != 0) << l;
  return mask;
}

}  // namespace emu
