// Sums of absolute differences, and byte-wise averages.
#include "family.hpp"

namespace arith {
namespace {

using u32 = uint32_t;
using u64 = uint64_t;

u32 field(u32 word, int i, int bits) { return word >> (i * bits) & ((u64{1} << bits) - 1); }
u32 distance(u32 a, u32 b) { return a > b ? a - b : b - a; }

int64_t sad(u32 a, u32 b, int bits) {
  int64_t sum = 0;
  for (int i = 0; i < 32 / bits; ++i) sum += distance(field(a, i, bits), field(b, i, bits));
  return sum;
}
// Bytes of the reference b that are zero do not count.
int64_t masked_sad(u32 a, u32 b) {
  int64_t sum = 0;
  for (int i = 0; i < 4; ++i)
    if (field(b, i, 8)) sum += distance(field(a, i, 8), field(b, i, 8));
  return sum;
}

u32 lerp(u32 a, u32 b, u32 round_up) {
  u32 out = 0;
  for (int i = 0; i < 4; ++i) out |= (field(a, i, 8) + field(b, i, 8) + (round_up >> 8 * i & 1)) >> 1 << 8 * i;
  return out;
}

// v_qsad and v_mqsad: the reference s1 against the four windows of s0 (64 bits) that start at bytes 0, 1, 2, 3.
template <bool Masked> int64_t window_sad(const Lanes* s0, const Lanes* s1, int lane, int window) {
  const u32 a = static_cast<u32>(join(s0, lane) >> 8 * window), b = s1[0][lane];
  return Masked ? masked_sad(a, b) : sad(a, b, 8);
}

template <bool Masked>
void qsad_u16(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  const Result<Saturated<uint16_t>, false> limit(m, mode);
  for (int lane = 0; lane < kLanes; ++lane) {
    u64 out = 0;
    for (int i = 0; i < 4; ++i) {
      const int64_t sum = window_sad<Masked>(s0, s1, lane, i) + static_cast<uint16_t>(join(s2, lane) >> 16 * i);
      out |= u64{limit.saturate(sum)} << 16 * i;
    }
    split(d, lane, out);
  }
}

void mqsad_u32(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  const Result<Saturated<u32>, false> result(m, mode);
  for (int i = 0; i < 4; ++i)
    for (int lane = 0; lane < kLanes; ++lane)
      result(d + i, lane, window_sad<true>(s0, s1, lane, i) + s2[i][lane]);
}

template <class Signature> Op quad_op(const char* name, LaneFn run, int words) {
  Op op = DescribeLane<Signature>::make(name);
  op.lane = run;
  op.dst_words = op.src_words[2] = static_cast<uint8_t>(words);
  return op;
}

}  // namespace

OpList sad_ops() {
  using Sat = Saturated<u32>;
  return {
      lane_op<Sat(u32, u32, u32), [](u32 a, u32 b, u32 c) { return sad(a, b, 8) + c; }>("v_sad_u8"),
      lane_op<Sat(u32, u32, u32), [](u32 a, u32 b, u32 c) { return (sad(a, b, 8) << 16) + c; }>("v_sad_hi_u8"),
      lane_op<Sat(u32, u32, u32), [](u32 a, u32 b, u32 c) { return sad(a, b, 16) + c; }>("v_sad_u16"),
      lane_op<Sat(u32, u32, u32), [](u32 a, u32 b, u32 c) { return sad(a, b, 32) + c; }>("v_sad_u32"),
      lane_op<Sat(u32, u32, u32), [](u32 a, u32 b, u32 c) { return masked_sad(a, b) + c; }>("v_msad_u8"),
      lane_op<u32(u32, u32, u32), lerp>("v_lerp_u8"),
      quad_op<u64(u64, u32, u64)>("v_qsad_pk_u16_u8", qsad_u16<false>, 2),
      quad_op<u64(u64, u32, u64)>("v_mqsad_pk_u16_u8", qsad_u16<true>, 2),
      quad_op<u64(u64, u32, u64)>("v_mqsad_u32_u8", mqsad_u32, 4),
  };
}

}  // namespace arith
