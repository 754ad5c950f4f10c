// Operations that read or write a lane mask beside their registers: carries, 64-bit multiply-add, v_cndmask_b32.
#include "mask_kernel.hpp"

namespace arith {
namespace {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

// The sum saturates when clamp is set; the flag is the carry or borrow either way.
using Sum = WithFlag<i64>;
constexpr auto kAdd = [](u32 a, u32 b, bool) { return Sum{i64{a} + b, u64{a} + b > 0xffffffff}; };
constexpr auto kSub = [](u32 a, u32 b, bool) { return Sum{i64{a} - b, b > a}; };
constexpr auto kSubRev = [](u32 a, u32 b, bool) { return Sum{i64{b} - a, a > b}; };
constexpr auto kAddC = [](u32 a, u32 b, bool c) { return Sum{i64{a} + b + c, u64{a} + b + c > 0xffffffff}; };
constexpr auto kSubB = [](u32 a, u32 b, bool c) { return Sum{i64{a} - b - c, u64{b} + c > a}; };
constexpr auto kSubBRev = [](u32 a, u32 b, bool c) { return Sum{i64{b} - a - c, u64{a} + c > b}; };

// a * b + c in 64 bits, saturated if clamp is set. The flag is bit 64 of the 65-bit sum of extended terms.
template <class Narrow, class Wide>
u64 mad_64(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, u64, const Modifiers& m, const Mode&) {
  using Limits = std::numeric_limits<Wide>;
  LaneFlags flags;
  for (int lane = 0; lane < kLanes; ++lane) {
    const Wide product = static_cast<Wide>(static_cast<Narrow>(s0[0][lane])) * static_cast<Narrow>(s1[0][lane]);
    const Wide addend = static_cast<Wide>(join(s2, lane));
    Wide sum;
    const bool overflow = __builtin_add_overflow(product, addend, &sum);
    flags[lane] = Limits::is_signed ? (sum < 0) != overflow : overflow;
    if (m.clamp && overflow) sum = addend < 0 ? Limits::min() : Limits::max();
    split(d, lane, static_cast<u64>(sum));
  }
  return pack_mask(flags);
}

template <class Narrow, class Wide> Op mad_64_op(const char* name) {
  Op op = DescribeLane<Wide(Narrow, Narrow, Wide)>::make(name);
  op.kind = Kind::Mask;
  op.mask = mad_64<Narrow, Wide>;
  op.mask_out = true;
  op.shadow = poison::upward<64>;
  return op;
}

// v_cndmask_b32 moves bits, but takes the sign modifiers of a float.
uint64_t cndmask(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, uint64_t mask, const Modifiers& m, const Mode&) {
  const FloatBits<u32, kSign32, kExponent32> no(m, 0, false), yes(m, 1, false);
  LaneFlags chosen;
  unpack_mask(mask, chosen);
  for (int lane = 0; lane < kLanes; ++lane) d[0][lane] = chosen[lane] ? yes(s1[0][lane]) : no(s0[0][lane]);
  return mask;
}

Op cndmask_op() {
  Op op = DescribeLane<u32(u32, u32)>::make("v_cndmask_b32");
  op.kind = Kind::Mask;
  op.mask = cndmask;
  op.mask_in = true;
  op.shadow = poison::select;
  return op;
}

}  // namespace

OpList carry_ops() {
  using SatU32 = Saturated<u32>;
  using poison::upward;
  return {
      mask_op<SatU32(u32, u32), kAdd>("v_add_co_u32", kOut, upward<32>),
      mask_op<SatU32(u32, u32), kSub>("v_sub_co_u32", kOut, upward<32>),
      mask_op<SatU32(u32, u32), kSubRev>("v_subrev_co_u32", kOut, upward<32>),
      mask_op<SatU32(u32, u32), kAddC>("v_addc_co_u32", kIn | kOut, upward<32>),
      mask_op<SatU32(u32, u32), kSubB>("v_subb_co_u32", kIn | kOut, upward<32>),
      mask_op<SatU32(u32, u32), kSubBRev>("v_subbrev_co_u32", kIn | kOut, upward<32>),
      mad_64_op<u32, u64>("v_mad_u64_u32"),
      mad_64_op<i32, i64>("v_mad_i64_i32"),
      cndmask_op(),
  };
}

}  // namespace arith
