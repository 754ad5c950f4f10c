// Scalar ALU: SOP1, SOP2, SOPK, SOPC. Results and SCC as in the CDNA3 ISA document, chapter "SOP instructions".
#include <bit>
#include <unordered_map>

#include "operands.hpp"

namespace emu {
namespace {

using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

template <typename T> constexpr int kWords = sizeof(T) / 4;
template <typename T> T value_of(Scalar x) { return T(x.value); }

u64 spread(u64 poison) { return poison ? ~0ull : 0; }  // any poison spoils the whole result

void set_scc(Wave& w, bool value, bool poison) { w.scc = value, w.scc_poison = poison; }
// SCC = result is not zero: certain as soon as one valid bit is set.
template <typename T> void set_scc_nonzero(Wave& w, Scalar x) {
  T value = T(x.value), shadow = T(x.shadow);
  set_scc(w, value != 0, shadow != 0 && (value & ~shadow) == 0);
}

// What an operation does to SCC.
enum class Scc { Keep, NonZero, FromOp };

// D = F(a, b, scc): F may change scc, which is kept only for Scc::FromOp.
template <typename T, typename A, typename B, Scc kScc, auto F> void binary(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 1, kWords<A>), b = read_scalar(w, i, 2, kWords<B>);
  bool scc = w.scc;
  T d = F(value_of<A>(a), value_of<B>(b), scc);
  Scalar result{sizeof(T) == 4 ? u32(d) : u64(d), spread(a.shadow | b.shadow)};
  write_scalar(w, i, 0, kWords<T>, result);
  if (kScc == Scc::NonZero) set_scc_nonzero<T>(w, result);
  if (kScc == Scc::FromOp) set_scc(w, scc, result.shadow);
}

// Additions with carry also depend on a poisoned SCC.
template <auto F> void carry(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 1, 1), b = read_scalar(w, i, 2, 1);
  bool scc = w.scc;
  u32 d = F(u32(a.value), u32(b.value), scc);
  u64 poison = spread(a.shadow | b.shadow | w.scc_poison);
  write_scalar(w, i, 0, 1, {d, poison});
  set_scc(w, scc, poison);
}

template <typename D, typename A, Scc kScc, auto F> void unary(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 1, kWords<A>);
  D d = F(value_of<A>(a));
  Scalar result{sizeof(D) == 4 ? u32(d) : u64(d), spread(a.shadow)};
  write_scalar(w, i, 0, kWords<D>, result);
  if (kScc == Scc::NonZero) set_scc_nonzero<D>(w, result);
}

template <typename T, auto F> void compare(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 0, kWords<T>), b = read_scalar(w, i, 1, kWords<T>);
  set_scc(w, F(value_of<T>(a), value_of<T>(b)), a.shadow | b.shadow);
}

// --- bitwise operations: poison moves bit by bit --------------------------------------------------------------------------
enum class Logic { And, Or, Xor, AndNot2, OrNot2, Nand, Nor, Xnor, AndNot1, OrNot1 };

Scalar logic(Logic op, Scalar a, Scalar b) {
  if (op == Logic::AndNot2 || op == Logic::OrNot2) b.value = ~b.value;
  if (op == Logic::AndNot1 || op == Logic::OrNot1) a.value = ~a.value;
  bool is_or = op == Logic::Or || op == Logic::OrNot2 || op == Logic::OrNot1 || op == Logic::Nor;
  bool is_xor = op == Logic::Xor || op == Logic::Xnor;
  u64 value = is_xor ? a.value ^ b.value : is_or ? a.value | b.value : a.value & b.value;
  u64 both = a.shadow | b.shadow;
  // A known 0 decides an AND, a known 1 an OR.
  u64 decided = is_xor ? 0 : is_or ? (a.value & ~a.shadow) | (b.value & ~b.shadow) : (~a.value & ~a.shadow) | (~b.value & ~b.shadow);
  if (op == Logic::Nand || op == Logic::Nor || op == Logic::Xnor) value = ~value;
  return {value, both & ~decided};
}

template <typename T, Logic kOp> void bitwise(Wave& w, const Inst& i) {
  Scalar r = logic(kOp, read_scalar(w, i, 1, kWords<T>), read_scalar(w, i, 2, kWords<T>));
  r = {T(r.value), T(r.shadow)};
  write_scalar(w, i, 0, kWords<T>, r);
  set_scc_nonzero<T>(w, r);
}

template <typename T> void move(Wave& w, const Inst& i) { write_scalar(w, i, 0, kWords<T>, read_scalar(w, i, 1, kWords<T>)); }
template <typename T> void not_(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 1, kWords<T>);
  Scalar r{T(~a.value), a.shadow};
  write_scalar(w, i, 0, kWords<T>, r);
  set_scc_nonzero<T>(w, r);
}

// D = EXEC; EXEC = S0 op EXEC.
template <Logic kOp> void save_exec(Wave& w, const Inst& i) {
  Scalar s = read_scalar(w, i, 1, 2);
  write_scalar(w, i, 0, 2, {w.exec, 0});
  Scalar r = logic(kOp, s, {w.exec, 0});
  write_exec(w, r);
  set_scc_nonzero<u64>(w, r);
}

// EXEC = D = S0 op EXEC.
template <Logic kOp> void write_exec_too(Wave& w, const Inst& i) {
  Scalar r = logic(kOp, read_scalar(w, i, 1, 2), {w.exec, 0});
  write_exec(w, r);
  write_scalar(w, i, 0, 2, {w.exec, 0});
  set_scc_nonzero<u64>(w, r);
}

template <typename T> void cselect(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 1, kWords<T>), b = read_scalar(w, i, 2, kWords<T>);
  Scalar r = w.scc ? a : b;
  if (w.scc_poison) r.shadow |= (a.value ^ b.value) | a.shadow | b.shadow;
  write_scalar(w, i, 0, kWords<T>, r);
}

template <typename T> void cmov(Wave& w, const Inst& i) {
  if (w.scc_poison) report(w, {.kind = FindingKind::PoisonBranch});
  if (w.scc) move<T>(w, i);
}

// --- SOPK: a 16-bit immediate ---------------------------------------------------------------------------------------------
i32 immediate16(const Inst& i) { return int16_t(i.word0 & 0xffff); }

void movk(Wave& w, const Inst& i) { write_scalar(w, i, 0, 1, {u32(immediate16(i)), 0}); }
void cmovk(Wave& w, const Inst& i) {
  if (w.scc_poison) report(w, {.kind = FindingKind::PoisonBranch});
  if (w.scc) movk(w, i);
}
void addk(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 0, 1);
  i32 d;
  bool overflow = __builtin_add_overflow(i32(a.value), immediate16(i), &d);
  write_scalar(w, i, 0, 1, {u32(d), spread(a.shadow)});
  set_scc(w, overflow, a.shadow);
}
void mulk(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 0, 1);
  write_scalar(w, i, 0, 1, {u32(a.value) * u32(immediate16(i)), spread(a.shadow)});
}
template <typename T, auto F> void comparek(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 0, 1);
  T immediate = std::is_signed_v<T> ? T(immediate16(i)) : T(i.word0 & 0xffff);
  set_scc(w, F(value_of<T>(a), immediate), a.shadow);
}

// --- bits -----------------------------------------------------------------------------------------------------------------
template <typename T> T field(T x, u32 offset, u32 width) {
  if (width == 0 || offset >= sizeof(T) * 8) return 0;
  u32 kept = std::min<u32>(width, sizeof(T) * 8 - offset);
  T r = T(x >> offset);  // arithmetic for signed T, so that a field past the top is sign-extended
  if (kept == sizeof(T) * 8) return r;
  int lost = int(sizeof(T) * 8 - kept);
  return T(T(std::make_unsigned_t<T>(r) << lost) >> lost);
}
template <typename T> T bfe(T x, u32 spec, bool&) { return field<T>(x, spec & (sizeof(T) * 8 - 1), spec >> 16 & 127); }
template <typename T> T bfm(u32 width, u32 offset, bool&) {
  u32 top = sizeof(T) * 8 - 1;
  return T(((T(1) << (width & top)) - 1) << (offset & top));
}
template <typename T> T whole_quad(T x) {
  T r = 0;
  for (u32 q = 0; q < sizeof(T) * 8; q += 4)
    if (x >> q & 15) r |= T(15) << q;
  return r;
}
template <typename T> T quad_mask(T x) {
  T r = 0;
  for (u32 q = 0; q < sizeof(T) * 2; q++) r |= T((x >> 4 * q & 15) != 0) << q;
  return r;
}
template <typename T> T reverse(T x) {
  T r = 0;
  for (u32 b = 0; b < sizeof(T) * 8; b++) r |= T(x >> b & 1) << (sizeof(T) * 8 - 1 - b);
  return r;
}
template <typename T> i32 first_one(T x) { return x ? std::countr_zero(x) : -1; }
template <typename T> i32 leading_zeros(T x) { return x ? std::countl_zero(x) : -1; }
template <typename T> i32 leading_sign(T x) {  // bits before the first one that differs from the sign
  using U = std::make_unsigned_t<T>;
  U y = U(x < 0 ? ~x : x);
  return y ? std::countl_zero(y) : -1;
}
u64 replicate(u32 x) {
  u64 r = 0;
  for (int b = 0; b < 32; b++) r |= u64(x >> b & 1) * 3 << 2 * b;
  return r;
}
template <typename T, bool kSet> void bitset(Wave& w, const Inst& i) {
  Scalar d = read_scalar(w, i, 0, kWords<T>), s = read_scalar(w, i, 1, 1);
  T bit = T(1) << (s.value & (sizeof(T) * 8 - 1));
  write_scalar(w, i, 0, kWords<T>, {kSet ? T(d.value | bit) : T(d.value & ~bit), s.shadow ? ~0ull : d.shadow & ~u64(bit)});
}
template <typename T, bool kOne> void bitcmp(Wave& w, const Inst& i) {
  Scalar a = read_scalar(w, i, 0, kWords<T>), b = read_scalar(w, i, 1, 1);
  u32 bit = b.value & (sizeof(T) * 8 - 1);
  set_scc(w, (a.value >> bit & 1) == kOne, b.shadow || (a.shadow >> bit & 1));
}

// --- relative SGPR addressing ------------------------------------------------------------------------------------------------
template <typename T, bool kSource> void movrel(Wave& w, const Inst& i) {
  int step = int(need(w, read_sgpr(w, kM0, 1)));
  int from = i.operands[1].index + (kSource ? step : 0), to = i.operands[0].index + (kSource ? 0 : step);
  Scalar x = kSource || i.operands[1].kind == OperandKind::Sgpr ? read_sgpr(w, from & 127, kWords<T>) : read_scalar(w, i, 1, kWords<T>);
  write_sgpr(w, to & 127, kWords<T>, x);
}

template <int kShift> u32 shift_add(u32 a, u32 b, bool& scc) {
  u64 sum = (u64(a) << kShift) + b;
  scc = sum > 0xffffffffull;
  return u32(sum);
}
template <typename T, bool kMax> T extreme(T a, T b, bool& scc) {
  scc = kMax ? a > b : a < b;
  return scc ? a : b;
}

template <typename T> constexpr auto eq = [](T a, T b) { return a == b; };
template <typename T> constexpr auto lg = [](T a, T b) { return a != b; };
template <typename T> constexpr auto gt = [](T a, T b) { return a > b; };
template <typename T> constexpr auto ge = [](T a, T b) { return a >= b; };
template <typename T> constexpr auto lt = [](T a, T b) { return a < b; };
template <typename T> constexpr auto le = [](T a, T b) { return a <= b; };

constexpr auto add_u32 = [](u32 a, u32 b, bool& c) { u32 d; return c = __builtin_add_overflow(a, b, &d), d; };
constexpr auto sub_u32 = [](u32 a, u32 b, bool& c) { return c = a < b, a - b; };
constexpr auto add_i32 = [](i32 a, i32 b, bool& c) { i32 d; return c = __builtin_add_overflow(a, b, &d), d; };
constexpr auto sub_i32 = [](i32 a, i32 b, bool& c) { i32 d; return c = __builtin_sub_overflow(a, b, &d), d; };
constexpr auto addc_u32 = [](u32 a, u32 b, bool& c) { u64 d = u64(a) + b + c; return c = d >> 32, u32(d); };
constexpr auto subb_u32 = [](u32 a, u32 b, bool& c) { u32 d = a - b - c; return c = u64(b) + c > a, d; };

// Named, because GCC 12 ends a template argument list at the >> of a lambda in it.
constexpr auto mul_hi_u32 = [](u32 a, u32 b, bool&) { return u32(u64(a) * b >> 32); };
constexpr auto mul_hi_i32 = [](i32 a, i32 b, bool&) { return i32(i64(a) * b >> 32); };
constexpr auto pack_hh_b32_b16 = [](u32 a, u32 b, bool&) { return a >> 16 | (b & 0xffff0000); };
constexpr auto lshr_b32 = [](u32 a, u32 b, bool&) { return a >> (b & 31); };
constexpr auto ashr_i32 = [](i32 a, u32 b, bool&) { return a >> (b & 31); };
constexpr auto lshr_b64 = [](u64 a, u32 b, bool&) { return a >> (b & 63); };
constexpr auto ashr_i64 = [](i64 a, u32 b, bool&) { return a >> (b & 63); };

const std::unordered_map<std::string, Handler> kHandlers = {
    {"s_mov_b32", move<u32>}, {"s_mov_b64", move<u64>}, {"s_not_b32", not_<u32>}, {"s_not_b64", not_<u64>},
    {"s_cmov_b32", cmov<u32>}, {"s_cmov_b64", cmov<u64>}, {"s_cselect_b32", cselect<u32>}, {"s_cselect_b64", cselect<u64>},
    {"s_movk_i32", movk}, {"s_cmovk_i32", cmovk}, {"s_addk_i32", addk}, {"s_mulk_i32", mulk},

    {"s_add_u32", binary<u32, u32, u32, Scc::FromOp, add_u32>}, {"s_sub_u32", binary<u32, u32, u32, Scc::FromOp, sub_u32>},
    {"s_add_i32", binary<i32, i32, i32, Scc::FromOp, add_i32>}, {"s_sub_i32", binary<i32, i32, i32, Scc::FromOp, sub_i32>},
    {"s_addc_u32", carry<addc_u32>}, {"s_subb_u32", carry<subb_u32>},
    {"s_min_i32", binary<i32, i32, i32, Scc::FromOp, extreme<i32, false>>}, {"s_min_u32", binary<u32, u32, u32, Scc::FromOp, extreme<u32, false>>},
    {"s_max_i32", binary<i32, i32, i32, Scc::FromOp, extreme<i32, true>>}, {"s_max_u32", binary<u32, u32, u32, Scc::FromOp, extreme<u32, true>>},
    {"s_mul_i32", binary<u32, u32, u32, Scc::Keep, [](u32 a, u32 b, bool&) { return a * b; }>},
    {"s_mul_hi_u32", binary<u32, u32, u32, Scc::Keep, mul_hi_u32>},
    {"s_mul_hi_i32", binary<i32, i32, i32, Scc::Keep, mul_hi_i32>},
    {"s_lshl1_add_u32", binary<u32, u32, u32, Scc::FromOp, shift_add<1>>}, {"s_lshl2_add_u32", binary<u32, u32, u32, Scc::FromOp, shift_add<2>>},
    {"s_lshl3_add_u32", binary<u32, u32, u32, Scc::FromOp, shift_add<3>>}, {"s_lshl4_add_u32", binary<u32, u32, u32, Scc::FromOp, shift_add<4>>},
    {"s_absdiff_i32", binary<u32, i32, i32, Scc::NonZero, [](i32 a, i32 b, bool&) { u32 d = u32(a) - u32(b); return i32(d) < 0 ? 0 - d : d; }>},
    {"s_pack_ll_b32_b16", binary<u32, u32, u32, Scc::Keep, [](u32 a, u32 b, bool&) { return (a & 0xffff) | b << 16; }>},
    {"s_pack_lh_b32_b16", binary<u32, u32, u32, Scc::Keep, [](u32 a, u32 b, bool&) { return (a & 0xffff) | (b & 0xffff0000); }>},
    {"s_pack_hh_b32_b16", binary<u32, u32, u32, Scc::Keep, pack_hh_b32_b16>},

    {"s_lshl_b32", binary<u32, u32, u32, Scc::NonZero, [](u32 a, u32 b, bool&) { return a << (b & 31); }>},
    {"s_lshr_b32", binary<u32, u32, u32, Scc::NonZero, lshr_b32>},
    {"s_ashr_i32", binary<i32, i32, u32, Scc::NonZero, ashr_i32>},
    {"s_lshl_b64", binary<u64, u64, u32, Scc::NonZero, [](u64 a, u32 b, bool&) { return a << (b & 63); }>},
    {"s_lshr_b64", binary<u64, u64, u32, Scc::NonZero, lshr_b64>},
    {"s_ashr_i64", binary<i64, i64, u32, Scc::NonZero, ashr_i64>},
    {"s_bfm_b32", binary<u32, u32, u32, Scc::Keep, bfm<u32>>}, {"s_bfm_b64", binary<u64, u32, u32, Scc::Keep, bfm<u64>>},
    {"s_bfe_u32", binary<u32, u32, u32, Scc::NonZero, bfe<u32>>}, {"s_bfe_i32", binary<i32, i32, u32, Scc::NonZero, bfe<i32>>},
    {"s_bfe_u64", binary<u64, u64, u32, Scc::NonZero, bfe<u64>>}, {"s_bfe_i64", binary<i64, i64, u32, Scc::NonZero, bfe<i64>>},

    {"s_and_b32", bitwise<u32, Logic::And>}, {"s_and_b64", bitwise<u64, Logic::And>}, {"s_or_b32", bitwise<u32, Logic::Or>},
    {"s_or_b64", bitwise<u64, Logic::Or>}, {"s_xor_b32", bitwise<u32, Logic::Xor>}, {"s_xor_b64", bitwise<u64, Logic::Xor>},
    {"s_andn2_b32", bitwise<u32, Logic::AndNot2>}, {"s_andn2_b64", bitwise<u64, Logic::AndNot2>},
    {"s_orn2_b32", bitwise<u32, Logic::OrNot2>}, {"s_orn2_b64", bitwise<u64, Logic::OrNot2>},
    {"s_nand_b32", bitwise<u32, Logic::Nand>}, {"s_nand_b64", bitwise<u64, Logic::Nand>}, {"s_nor_b32", bitwise<u32, Logic::Nor>},
    {"s_nor_b64", bitwise<u64, Logic::Nor>}, {"s_xnor_b32", bitwise<u32, Logic::Xnor>}, {"s_xnor_b64", bitwise<u64, Logic::Xnor>},
    {"s_and_saveexec_b64", save_exec<Logic::And>}, {"s_or_saveexec_b64", save_exec<Logic::Or>},
    {"s_xor_saveexec_b64", save_exec<Logic::Xor>}, {"s_andn2_saveexec_b64", save_exec<Logic::AndNot2>},
    {"s_orn2_saveexec_b64", save_exec<Logic::OrNot2>}, {"s_nand_saveexec_b64", save_exec<Logic::Nand>},
    {"s_nor_saveexec_b64", save_exec<Logic::Nor>}, {"s_xnor_saveexec_b64", save_exec<Logic::Xnor>},
    {"s_andn1_saveexec_b64", save_exec<Logic::AndNot1>}, {"s_orn1_saveexec_b64", save_exec<Logic::OrNot1>},
    {"s_andn1_wrexec_b64", write_exec_too<Logic::AndNot1>}, {"s_andn2_wrexec_b64", write_exec_too<Logic::AndNot2>},

    {"s_wqm_b32", unary<u32, u32, Scc::NonZero, whole_quad<u32>>}, {"s_wqm_b64", unary<u64, u64, Scc::NonZero, whole_quad<u64>>},
    {"s_quadmask_b32", unary<u32, u32, Scc::NonZero, quad_mask<u32>>}, {"s_quadmask_b64", unary<u64, u64, Scc::NonZero, quad_mask<u64>>},
    {"s_brev_b32", unary<u32, u32, Scc::Keep, reverse<u32>>}, {"s_brev_b64", unary<u64, u64, Scc::Keep, reverse<u64>>},
    {"s_bcnt0_i32_b32", unary<u32, u32, Scc::NonZero, [](u32 a) { return u32(std::popcount(~a)); }>},
    {"s_bcnt0_i32_b64", unary<u32, u64, Scc::NonZero, [](u64 a) { return u32(std::popcount(~a)); }>},
    {"s_bcnt1_i32_b32", unary<u32, u32, Scc::NonZero, [](u32 a) { return u32(std::popcount(a)); }>},
    {"s_bcnt1_i32_b64", unary<u32, u64, Scc::NonZero, [](u64 a) { return u32(std::popcount(a)); }>},
    {"s_ff0_i32_b32", unary<i32, u32, Scc::Keep, [](u32 a) { return first_one<u32>(~a); }>},
    {"s_ff0_i32_b64", unary<i32, u64, Scc::Keep, [](u64 a) { return first_one<u64>(~a); }>},
    {"s_ff1_i32_b32", unary<i32, u32, Scc::Keep, first_one<u32>>}, {"s_ff1_i32_b64", unary<i32, u64, Scc::Keep, first_one<u64>>},
    {"s_flbit_i32_b32", unary<i32, u32, Scc::Keep, leading_zeros<u32>>}, {"s_flbit_i32_b64", unary<i32, u64, Scc::Keep, leading_zeros<u64>>},
    {"s_flbit_i32", unary<i32, i32, Scc::Keep, leading_sign<i32>>}, {"s_flbit_i32_i64", unary<i32, i64, Scc::Keep, leading_sign<i64>>},
    {"s_sext_i32_i8", unary<i32, u32, Scc::Keep, [](u32 a) { return i32(int8_t(a)); }>},
    {"s_sext_i32_i16", unary<i32, u32, Scc::Keep, [](u32 a) { return i32(int16_t(a)); }>},
    {"s_abs_i32", unary<u32, i32, Scc::NonZero, [](i32 a) { return a < 0 ? 0 - u32(a) : u32(a); }>},
    {"s_bitreplicate_b64_b32", unary<u64, u32, Scc::Keep, replicate>},
    {"s_bitset0_b32", bitset<u32, false>}, {"s_bitset0_b64", bitset<u64, false>}, {"s_bitset1_b32", bitset<u32, true>}, {"s_bitset1_b64", bitset<u64, true>},
    {"s_bitcmp0_b32", bitcmp<u32, false>}, {"s_bitcmp0_b64", bitcmp<u64, false>}, {"s_bitcmp1_b32", bitcmp<u32, true>}, {"s_bitcmp1_b64", bitcmp<u64, true>},
    {"s_movrels_b32", movrel<u32, true>}, {"s_movrels_b64", movrel<u64, true>}, {"s_movreld_b32", movrel<u32, false>}, {"s_movreld_b64", movrel<u64, false>},

    {"s_cmp_eq_i32", compare<i32, eq<i32>>}, {"s_cmp_lg_i32", compare<i32, lg<i32>>}, {"s_cmp_gt_i32", compare<i32, gt<i32>>},
    {"s_cmp_ge_i32", compare<i32, ge<i32>>}, {"s_cmp_lt_i32", compare<i32, lt<i32>>}, {"s_cmp_le_i32", compare<i32, le<i32>>},
    {"s_cmp_eq_u32", compare<u32, eq<u32>>}, {"s_cmp_lg_u32", compare<u32, lg<u32>>}, {"s_cmp_gt_u32", compare<u32, gt<u32>>},
    {"s_cmp_ge_u32", compare<u32, ge<u32>>}, {"s_cmp_lt_u32", compare<u32, lt<u32>>}, {"s_cmp_le_u32", compare<u32, le<u32>>},
    {"s_cmp_eq_u64", compare<u64, eq<u64>>}, {"s_cmp_lg_u64", compare<u64, lg<u64>>},
    {"s_cmpk_eq_i32", comparek<i32, eq<i32>>}, {"s_cmpk_lg_i32", comparek<i32, lg<i32>>}, {"s_cmpk_gt_i32", comparek<i32, gt<i32>>},
    {"s_cmpk_ge_i32", comparek<i32, ge<i32>>}, {"s_cmpk_lt_i32", comparek<i32, lt<i32>>}, {"s_cmpk_le_i32", comparek<i32, le<i32>>},
    {"s_cmpk_eq_u32", comparek<u32, eq<u32>>}, {"s_cmpk_lg_u32", comparek<u32, lg<u32>>}, {"s_cmpk_gt_u32", comparek<u32, gt<u32>>},
    {"s_cmpk_ge_u32", comparek<u32, ge<u32>>}, {"s_cmpk_lt_u32", comparek<u32, lt<u32>>}, {"s_cmpk_le_u32", comparek<u32, le<u32>>},
};

}  // namespace

Handler find_control(const std::string& name);

Handler find_scalar(const std::string& name) {
  if (auto found = kHandlers.find(name); found != kHandlers.end()) return found->second;
  return find_control(name);
}

}  // namespace emu
