// v_cmp* and v_cmpx*: one bit per lane. Both kinds share their functions; what the mask is written to is not arithmetic.
#include <deque>
#include <string>

#include "family.hpp"
#include "masks.hpp"
#include "minmax.hpp"

namespace arith {
namespace {

template <class T, auto F> struct CompareKernel {
  static uint64_t run(const Lanes* s0, const Lanes* s1, const Modifiers& m, const Mode& mode) {
    return is_plain(m, mode) ? loop<true>(s0, s1, m, mode) : loop<false>(s0, s1, m, mode);
  }
  template <bool Plain> static uint64_t loop(const Lanes* s0, const Lanes* s1, const Modifiers& m, const Mode& mode) {
    const Source<T, Plain> a(m, mode, 0), b(m, mode, 1);
    LaneFlags flags;
    for (int lane = 0; lane < kLanes; ++lane) flags[lane] = F(a(s0, lane), b(s1, lane));
    return pack_mask(flags);
  }
};

// Bit of the class mask of v_cmp_class that a number with these fields falls under.
int class_bit(bool sign, uint64_t exponent, uint64_t exponent_max, uint64_t mantissa, uint64_t quiet_bit) {
  if (exponent == exponent_max && mantissa) return mantissa & quiet_bit ? 1 : 0;
  if (exponent == exponent_max) return sign ? 2 : 9;
  if (exponent) return sign ? 3 : 8;
  if (mantissa) return sign ? 4 : 7;
  return sign ? 5 : 6;
}

template <int Bits, int MantissaBits>
uint64_t compare_class(const Lanes* s0, const Lanes* s1, const Modifiers& m, const Mode&) {
  const uint64_t sign_bit = uint64_t{1} << (Bits - 1), mantissa_mask = (uint64_t{1} << MantissaBits) - 1;
  const uint64_t exponent_max = (uint64_t{1} << (Bits - 1 - MantissaBits)) - 1;
  const int shift = Bits == 16 && (m.op_sel & 1) ? 16 : 0;
  LaneFlags flags;
  for (int lane = 0; lane < kLanes; ++lane) {
    uint64_t x = Bits == 64 ? join(s0, lane) : s0[0][lane] >> shift;
    if (m.abs & 1) x &= ~sign_bit;
    if (m.neg & 1) x ^= sign_bit;
    const int bit = class_bit(x & sign_bit, x >> MantissaBits & exponent_max, exponent_max, x & mantissa_mask,
                              uint64_t{1} << (MantissaBits - 1));
    flags[lane] = s1[0][lane] >> bit & 1;
  }
  return pack_mask(flags);
}

const char* keep_name(std::string name) {
  static std::deque<std::string> names;  // stable addresses
  return names.emplace_back(std::move(name)).c_str();
}

template <class... S> void add(OpList& ops, const std::string& suffix, CompareFn run) {
  for (const char* prefix : {"v_cmp_", "v_cmpx_"}) {
    Op op = describe<uint32_t, S...>(keep_name(prefix + suffix), Kind::Compare);
    op.dst_words = 0;
    op.compare = run;
    ops.push_back(op);
  }
}

// The relations, by the part of the mnemonic that names them. With NaN operands nlt is not ge.
constexpr auto kF = [](auto, auto) { return false; };
constexpr auto kLt = [](auto a, auto b) { return a < b; };
constexpr auto kEq = [](auto a, auto b) { return a == b; };
constexpr auto kLe = [](auto a, auto b) { return a <= b; };
constexpr auto kGt = [](auto a, auto b) { return a > b; };
constexpr auto kGe = [](auto a, auto b) { return a >= b; };
constexpr auto kNe = [](auto a, auto b) { return a != b; };
constexpr auto kLg = [](auto a, auto b) { return a < b || a > b; };
constexpr auto kO = [](auto a, auto b) { return a == a && b == b; };
constexpr auto kU = [](auto a, auto b) { return a != a || b != b; };
constexpr auto kNge = [](auto a, auto b) { return !(a >= b); };
constexpr auto kNlg = [](auto a, auto b) { return !(a < b || a > b); };
constexpr auto kNgt = [](auto a, auto b) { return !(a > b); };
constexpr auto kNle = [](auto a, auto b) { return !(a <= b); };
constexpr auto kNeq = [](auto a, auto b) { return !(a == b); };
constexpr auto kNlt = [](auto a, auto b) { return !(a < b); };
constexpr auto kT = [](auto, auto) { return true; };

struct Relation {
  const char* name;
  CompareFn run;
};

template <class T> void add_relations(OpList& ops, const std::string& type, std::initializer_list<Relation> relations) {
  for (const Relation& relation : relations) add<T, T>(ops, std::string(relation.name) + "_" + type, relation.run);
}

template <class T, auto F> constexpr CompareFn kRun = CompareKernel<T, F>::run;

template <class T> void add_ordered(OpList& ops, const std::string& type) {
  add_relations<T>(ops, type, {{"f", kRun<T, kF>}, {"lt", kRun<T, kLt>}, {"eq", kRun<T, kEq>}, {"le", kRun<T, kLe>},
                               {"gt", kRun<T, kGt>}, {"ge", kRun<T, kGe>}});
}
template <class T> void add_integer(OpList& ops, const std::string& type) {
  add_ordered<T>(ops, type);
  add_relations<T>(ops, type, {{"ne", kRun<T, kNe>}, {"t", kRun<T, kT>}});
}
template <class T> void add_float(OpList& ops, const std::string& type) {
  add_ordered<T>(ops, type);
  add_relations<T>(ops, type, {{"lg", kRun<T, kLg>}, {"o", kRun<T, kO>}, {"u", kRun<T, kU>}, {"nge", kRun<T, kNge>},
                               {"nlg", kRun<T, kNlg>}, {"ngt", kRun<T, kNgt>}, {"nle", kRun<T, kNle>},
                               {"neq", kRun<T, kNeq>}, {"nlt", kRun<T, kNlt>}, {"tru", kRun<T, kT>}});
}

}  // namespace

OpList compare_ops() {
  OpList ops;
  add_integer<int16_t>(ops, "i16");
  add_integer<uint16_t>(ops, "u16");
  add_integer<int32_t>(ops, "i32");
  add_integer<uint32_t>(ops, "u32");
  add_integer<int64_t>(ops, "i64");
  add_integer<uint64_t>(ops, "u64");
  add_float<Half>(ops, "f16");
  add_float<float>(ops, "f32");
  add_float<double>(ops, "f64");
  add<Half, uint32_t>(ops, "class_f16", compare_class<16, 10>);
  add<float, uint32_t>(ops, "class_f32", compare_class<32, 23>);
  add<double, uint32_t>(ops, "class_f64", compare_class<64, 52>);
  return ops;
}

}  // namespace arith
