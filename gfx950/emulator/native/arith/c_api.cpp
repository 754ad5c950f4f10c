// C entry points to single operations, for the instruction tests.
#include "arith.hpp"
#include "assumptions.hpp"

#define EXPORT __attribute__((visibility("default")))

namespace {

using namespace arith;

// Order of the fields in the arrays that describe modifiers and mode.
Modifiers modifiers_from(const uint8_t* f) {
  return {f[0], f[1], f[2], f[3], f[4], f[5], f[6] != 0, f[7], f[8], f[9], f[10]};
}
Mode mode_from(const uint8_t* f) { return {f[0], f[1], f[2], f[3], f[4] != 0, f[5] != 0, f[6] != 0}; }

}  // namespace

extern "C" {

// Operands of one operation; null pointers where it has none. `mask` is a lane mask in and out.
struct ArithCall {
  const Lanes *s0, *s1, *s2, *extra0, *extra1;
  const Lanes *q0, *q1, *q2, *q_extra0, *q_extra1, *q_dst;  // shadows
  uint64_t mask, mask_shadow;
  const uint8_t *modifiers, *mode;
};

// Inverts a set of Assumptions for the whole process; 0 restores the facts.
EXPORT void arith_invert(uint32_t assumptions) { inverted = assumptions; }

EXPORT const char* arith_op_name(int index) { return index < op_count() ? op_at(index).name : nullptr; }

// Fills kind, dst_words, src_count, src_words[3], src_type[3], reads_dst, mask_in, mask_out. False if unknown.
EXPORT bool arith_describe(const char* name, uint8_t* out) {
  const Op* op = find(name);
  if (!op) return false;
  const uint8_t fields[] = {static_cast<uint8_t>(op->kind),        op->dst_words,
                            op->src_count,                         op->src_words[0],
                            op->src_words[1],                      op->src_words[2],
                            static_cast<uint8_t>(op->src_type[0]), static_cast<uint8_t>(op->src_type[1]),
                            static_cast<uint8_t>(op->src_type[2]), op->reads_dst,
                            op->mask_in,                           op->mask_out};
  for (uint8_t field : fields) *out++ = field;
  return true;
}

// Computes `d`; returns the lane mask of compares, carries and the like.
EXPORT uint64_t arith_run(const char* name, Lanes* d, const ArithCall* call) {
  const Op& op = *find(name);
  const Modifiers m = modifiers_from(call->modifiers);
  const Mode mode = mode_from(call->mode);
  switch (op.kind) {
    case Kind::Lane: op.lane(d, call->s0, call->s1, call->s2, m, mode); return 0;
    case Kind::Mask: return op.mask(d, call->s0, call->s1, call->s2, call->mask, m, mode);
    case Kind::Compare: return op.compare(call->s0, call->s1, m, mode);
    case Kind::Mfma: mfma(op, d, call->s0, call->s1, call->s2, call->extra0, call->extra1, m, mode); return 0;
  }
  return 0;
}

// Poison of the result in `d`; returns the poison of the lane mask.
EXPORT uint64_t arith_shadow(const char* name, Lanes* d, const ArithCall* call) {
  const Op& op = *find(name);
  const Modifiers m = modifiers_from(call->modifiers);
  if (op.kind == Kind::Mfma) {
    mfma_shadow(op, d, call->q0, call->q1, call->q2, call->q_extra0, call->q_extra1, m);
    return 0;
  }
  Operands from{{call->s0, call->s1, call->s2}, {call->q0, call->q1, call->q2}, call->q_dst, call->mask, call->mask_shadow};
  if (op.kind != Kind::Compare) shadow(op, d, from, m);
  return poisoned_lanes(op, from, m);
}

}  // extern "C"
