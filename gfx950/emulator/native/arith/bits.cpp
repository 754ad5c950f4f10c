// Bitwise operations, shifts, and moves of bits and bytes.
#include "family.hpp"

namespace arith {
namespace {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;
using N32 = Amount<uint32_t>;
using N64 = Amount<uint64_t>;

constexpr auto kShiftLeft = [](u32 n, auto a) { return a << n; };
constexpr auto kShiftRight = [](u32 n, auto a) { return a >> n; };

u32 reverse(u32 x) {
  x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
  x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
  x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
  x = (x >> 8 & 0x00ff00ff) | (x & 0x00ff00ff) << 8;
  return x >> 16 | x << 16;
}

u32 extract(u32 x, u32 offset, u32 width) { return x >> offset & ((1u << width) - 1); }
i32 extract_signed(i32 x, u32 offset, u32 width) {
  return width == 0 ? 0 : static_cast<i32>(static_cast<u32>(x >> offset) << (32 - width)) >> (32 - width);
}

// One byte of v_perm_b32 from the eight bytes {s0, s1}, s1 being bytes 0 to 3.
u32 permute_byte(u64 bytes, u32 select) {
  if (select >= 13) return 0xff;
  if (select == 12) return 0;
  if (select >= 8) return bytes >> (16 * (select - 8) + 15) & 1 ? 0xff : 0;  // sign of byte 1, 3, 5 or 7
  return static_cast<u32>(bytes >> (8 * select)) & 0xff;
}

u32 permute(u32 s0, u32 s1, u32 select) {
  const u64 bytes = u64{s0} << 32 | s1;
  u32 out = 0;
  for (int i = 0; i < 4; ++i) out |= permute_byte(bytes, select >> (8 * i) & 0xff) << (8 * i);
  return out;
}

template <class T> T truth_table(T a, T b, T c, uint8_t table) {
  T out = 0;
  for (int entry = 0; entry < 8; ++entry) {
    const T match = static_cast<T>((entry & 4 ? a : ~a) & (entry & 2 ? b : ~b) & (entry & 1 ? c : ~c));
    if (table >> entry & 1) out = static_cast<T>(out | match);
  }
  return out;
}

void bitop3_b32(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode&) {
  for (int lane = 0; lane < kLanes; ++lane)
    d[0][lane] = truth_table<u32>(s0[0][lane], s1[0][lane], s2[0][lane], m.bitop3);
}

void bitop3_b16(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  const Source<uint16_t, false> a(m, mode, 0), b(m, mode, 1), c(m, mode, 2);
  const Result<Kept<uint16_t>, false> result(m, mode);
  for (int lane = 0; lane < kLanes; ++lane)
    result(d, lane, truth_table<uint16_t>(a(s0, lane), b(s1, lane), c(s2, lane), m.bitop3));
}

template <class Signature> Op bitop3_op(const char* name, LaneFn run) {
  Op op = DescribeLane<Signature>::make(name);
  op.lane = run;
  op.shadow = poison::bitop3;
  return op;
}

// v_pack_b32_f16: two selected halves, with f16 sign modifiers.
void pack_b32_f16(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers& m, const Mode&) {
  const FloatBits<uint16_t, kSign16, kExponent16> low(m, 0, false), high(m, 1, false);
  const int shift0 = m.op_sel & 1 ? 16 : 0, shift1 = m.op_sel & 2 ? 16 : 0;
  for (int lane = 0; lane < kLanes; ++lane)
    d[0][lane] = pack_halves(low(static_cast<uint16_t>(s0[0][lane] >> shift0)),
                             high(static_cast<uint16_t>(s1[0][lane] >> shift1)));
}

Op pack_op() {
  Op op = DescribeLane<u32(Half, Half)>::make("v_pack_b32_f16");
  op.lane = pack_b32_f16;
  op.shadow = poison::moved<3>;
  return op;
}

int first_high_bit(u32 a) { return a ? std::countl_zero(a) : -1; }
int first_change(i32 a) {
  const int same = std::countl_zero(static_cast<u32>(a < 0 ? ~a : a));
  return same == 32 ? -1 : same;
}

}  // namespace

OpList bit_ops() {
  using namespace poison;
  return {
      lane_op<u32(u32), [](u32 a) { return a; }>("v_mov_b32", moved<1>),
      lane_op<u64(u64), [](u64 a) { return a; }>("v_mov_b64", moved<1>),
      lane_op<u32(u32), [](u32 a) { return ~a; }>("v_not_b32", bitwise<0x0f>),
      lane_op<u32(u32, u32), [](u32 a, u32 b) { return a & b; }>("v_and_b32", bitwise<0xc0>),
      lane_op<u32(u32, u32), [](u32 a, u32 b) { return a | b; }>("v_or_b32", bitwise<0xfc>),
      lane_op<u32(u32, u32), [](u32 a, u32 b) { return a ^ b; }>("v_xor_b32", bitwise<0x3c>),
      lane_op<u32(u32, u32), [](u32 a, u32 b) { return ~(a ^ b); }>("v_xnor_b32", bitwise<0xc3>),
      lane_op<u32(u32, u32, u32), [](u32 a, u32 b, u32 c) { return (a & b) | c; }>("v_and_or_b32", bitwise<0xea>),
      lane_op<u32(u32, u32, u32), [](u32 a, u32 b, u32 c) { return a | b | c; }>("v_or3_b32", bitwise<0xfe>),
      lane_op<u32(u32, u32, u32), [](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); }>("v_bfi_b32", bitwise<0xca>),
      bitop3_op<u32(u32, u32, u32)>("v_bitop3_b32", bitop3_b32),
      bitop3_op<Kept<uint16_t>(uint16_t, uint16_t, uint16_t)>("v_bitop3_b16", bitop3_b16),

      lane_op<u32(N32, u32), kShiftLeft>("v_lshlrev_b32", moved<2>),
      lane_op<u32(N32, u32), kShiftRight>("v_lshrrev_b32", moved<2>),
      lane_op<i32(N32, i32), kShiftRight>("v_ashrrev_i32", moved<2>),
      lane_op<u64(N64, u64), kShiftLeft>("v_lshlrev_b64", moved<2>),
      lane_op<u64(N64, u64), kShiftRight>("v_lshrrev_b64", moved<2>),
      lane_op<i64(N64, i64), kShiftRight>("v_ashrrev_i64", moved<2>),
      lane_op<u32(u32, N32, u32), [](u32 a, u32 n, u32 c) { return a << n | c; }>("v_lshl_or_b32", lshl_or),

      lane_op<u32(u32, N32, N32), extract>("v_bfe_u32", moved<1>),
      lane_op<i32(i32, N32, N32), extract_signed>("v_bfe_i32", moved<1>),
      lane_op<u32(N32, N32), [](u32 width, u32 offset) { return ((1u << width) - 1) << offset; }>("v_bfm_b32"),
      lane_op<u32(u32, u32, N32), [](u32 a, u32 b, u32 n) { return static_cast<u32>((u64{a} << 32 | b) >> n); }>(
          "v_alignbit_b32", moved<3>),
      lane_op<u32(u32, u32, u32),
              [](u32 a, u32 b, u32 n) { return static_cast<u32>((u64{a} << 32 | b) >> 8 * (n & 3)); }>("v_alignbyte_b32",
                                                                                                      moved<3>),
      lane_op<u32(u32, u32, u32), permute>("v_perm_b32", moved<3>),
      pack_op(),

      lane_op<u32(u32), reverse>("v_bfrev_b32", moved<1>),
      lane_op<u32(u32, u32), [](u32 a, u32 b) { return static_cast<u32>(std::popcount(a)) + b; }>("v_bcnt_u32_b32"),
      lane_op<i32(u32), first_high_bit>("v_ffbh_u32"),
      lane_op<i32(i32), first_change>("v_ffbh_i32"),
      lane_op<i32(u32), [](u32 a) { return a ? std::countr_zero(a) : -1; }>("v_ffbl_b32"),
  };
}

}  // namespace arith
