// 16-bit integer arithmetic on single halves.
#include "family.hpp"
#include "formulas.hpp"

namespace arith {
namespace {

using u16 = uint16_t;
using i16 = int16_t;
using SatU16 = Saturated<u16>;
using SatI16 = Saturated<i16>;
using N16 = Amount<u16>;

}  // namespace

OpList integer16_ops() {
  using poison::moved, poison::upward;
  return {
      lane_op<SatU16(u16, u16), kAdd>("v_add_u16", upward<16>),
      lane_op<SatU16(u16, u16), kSub>("v_sub_u16", upward<16>),
      lane_op<SatU16(u16, u16), kSubRev>("v_subrev_u16", upward<16>),
      lane_op<Kept<SatI16>(i16, i16), kAdd>("v_add_i16", upward<16>),
      lane_op<Kept<SatI16>(i16, i16), kSub>("v_sub_i16", upward<16>),
      lane_op<u16(u16, u16), [](u16 a, u16 b) { return static_cast<u16>(uint32_t{a} * b); }>("v_mul_lo_u16", upward<16>),
      lane_op<Kept<SatU16>(u16, u16, u16), kMad>("v_mad_u16", upward<16>),
      lane_op<Kept<SatI16>(i16, i16, i16), kMad>("v_mad_i16", upward<16>),
      lane_op<SatU16(u16, u16, u16), kMad>("v_mad_legacy_u16", upward<16>),
      lane_op<SatI16(i16, i16, i16), kMad>("v_mad_legacy_i16", upward<16>),

      lane_op<u16(N16, u16), [](uint32_t n, u16 a) { return static_cast<u16>(a << n); }>("v_lshlrev_b16", moved<2>),
      lane_op<u16(N16, u16), [](uint32_t n, u16 a) { return static_cast<u16>(a >> n); }>("v_lshrrev_b16", moved<2>),
      lane_op<i16(N16, i16), [](uint32_t n, i16 a) { return static_cast<i16>(a >> n); }>("v_ashrrev_i16", moved<2>),

      lane_op<u16(u16, u16), kMin>("v_min_u16"),
      lane_op<u16(u16, u16), kMax>("v_max_u16"),
      lane_op<i16(i16, i16), kMin>("v_min_i16"),
      lane_op<i16(i16, i16), kMax>("v_max_i16"),
      lane_op<Kept<u16>(u16, u16, u16), kMin3>("v_min3_u16"),
      lane_op<Kept<u16>(u16, u16, u16), kMax3>("v_max3_u16"),
      lane_op<Kept<u16>(u16, u16, u16), kMed3>("v_med3_u16"),
      lane_op<Kept<i16>(i16, i16, i16), kMin3>("v_min3_i16"),
      lane_op<Kept<i16>(i16, i16, i16), kMax3>("v_max3_i16"),
      lane_op<Kept<i16>(i16, i16, i16), kMed3>("v_med3_i16"),
  };
}

}  // namespace arith
