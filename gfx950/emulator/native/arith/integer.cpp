// 32-bit and 64-bit integer arithmetic.
#include "family.hpp"
#include "formulas.hpp"
#include "minifloat.hpp"

namespace arith {
namespace {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;
using SatU32 = Saturated<uint32_t>;
using SatI32 = Saturated<int32_t>;

u32 count_below(u32 bits, int lane_bits) { return bits & (lane_bits >= 32 ? ~0u : (1u << lane_bits) - 1); }

// v_mbcnt_lo/hi: bits of s0 that stand for lanes (of the low or high 32) below this one, plus s1.
template <int FirstLane>
void mbcnt(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers&, const Mode&) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const u32 below = lane > FirstLane ? count_below(s0[0][lane], lane - FirstLane) : 0;
    d[0][lane] = static_cast<u32>(std::popcount(below)) + s1[0][lane];
  }
}

Op mbcnt_op(const char* name, LaneFn run) {
  Op op = DescribeLane<u32(u32, u32)>::make(name);
  op.lane = run;
  return op;
}

}  // namespace

OpList integer_ops() {
  using poison::upward;
  return {
      lane_op<SatU32(u32, u32), kAdd>("v_add_u32", upward<32>),
      lane_op<SatU32(u32, u32), kSub>("v_sub_u32", upward<32>),
      lane_op<SatU32(u32, u32), kSubRev>("v_subrev_u32", upward<32>),
      lane_op<SatI32(i32, i32), kAdd>("v_add_i32", upward<32>),
      lane_op<SatI32(i32, i32), kSub>("v_sub_i32", upward<32>),
      lane_op<u32(u32, u32, u32), [](u32 a, u32 b, u32 c) { return a + b + c; }>("v_add3_u32", upward<32>),
      lane_op<u32(u32, u32, u32), [](u32 a, u32 b, u32 c) { return (a ^ b) + c; }>("v_xad_u32", upward<32>),
      lane_op<u32(u32, Amount<u32>, u32), [](u32 a, u32 n, u32 c) { return (a << n) + c; }>("v_lshl_add_u32",
                                                                                           poison::lshl_add),
      lane_op<u32(u32, u32, Amount<u32>), [](u32 a, u32 b, u32 n) { return (a + b) << n; }>("v_add_lshl_u32"),
      lane_op<u64(u64, u32, u64), [](u64 a, u32 n, u64 c) { return (a << shift_of_lshl_add_u64(n)) + c; }>(
          "v_lshl_add_u64", poison::lshl_add),

      lane_op<u32(u32, u32), [](u32 a, u32 b) { return a * b; }>("v_mul_lo_u32", upward<32>),
      lane_op<u32(u32, u32), [](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }>("v_mul_hi_u32"),
      lane_op<i32(i32, i32), [](i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); }>("v_mul_hi_i32"),
      lane_op<SatU32(U24, U24), [](u32 a, u32 b) { return static_cast<i64>(u64{a} * b); }>("v_mul_u32_u24", upward<32>),
      lane_op<u32(U24, U24), [](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }>("v_mul_hi_u32_u24"),
      lane_op<SatI32(I24, I24), [](i32 a, i32 b) { return i64{a} * b; }>("v_mul_i32_i24", upward<32>),
      lane_op<i32(I24, I24), [](i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); }>("v_mul_hi_i32_i24"),
      lane_op<SatU32(U24, U24, u32), [](u32 a, u32 b, u32 c) { return static_cast<i64>(u64{a} * b + c); }>(
          "v_mad_u32_u24", upward<32>),
      lane_op<SatI32(I24, I24, i32), [](i32 a, i32 b, i32 c) { return i64{a} * b + c; }>("v_mad_i32_i24", upward<32>),
      lane_op<SatU32(uint16_t, uint16_t, u32), [](uint16_t a, uint16_t b, u32 c) { return i64{u32{a} * b} + c; }>(
          "v_mad_u32_u16", upward<32>),
      lane_op<SatI32(int16_t, int16_t, i32), [](int16_t a, int16_t b, i32 c) { return i64{a} * b + c; }>(
          "v_mad_i32_i16", upward<32>),

      lane_op<u32(u32, u32), kMin>("v_min_u32"),
      lane_op<u32(u32, u32), kMax>("v_max_u32"),
      lane_op<i32(i32, i32), kMin>("v_min_i32"),
      lane_op<i32(i32, i32), kMax>("v_max_i32"),
      lane_op<u32(u32, u32, u32), kMin3>("v_min3_u32"),
      lane_op<u32(u32, u32, u32), kMax3>("v_max3_u32"),
      lane_op<u32(u32, u32, u32), kMed3>("v_med3_u32"),
      lane_op<i32(i32, i32, i32), kMin3>("v_min3_i32"),
      lane_op<i32(i32, i32, i32), kMax3>("v_max3_i32"),
      lane_op<i32(i32, i32, i32), kMed3>("v_med3_i32"),

      mbcnt_op("v_mbcnt_lo_u32_b32", mbcnt<0>),
      mbcnt_op("v_mbcnt_hi_u32_b32", mbcnt<32>),
      lane_op<u32(u32), next_random>("v_prng_b32"),
  };
}

}  // namespace arith
