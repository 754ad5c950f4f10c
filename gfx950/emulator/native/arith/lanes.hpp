// Turns a scalar formula over C++ types into a function over the 64 lanes of a wave.
//
//   lane_op<float(float, float), [](float a, float b) { return a + b; }>("v_add_f32")
//
// The signature's types say how a source is read (words, halves, modifiers, denormals) and how the result is written
// (rounding, omod, clamp, denormals, which half). Every formula is compiled twice: a plain loop that the host compiler
// vectorises, and one that honours the modifiers and the floating-point mode.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "arith.hpp"
#include "float_mode.hpp"
#include "halves.hpp"

namespace arith {

// Types of a signature beyond the plain C++ ones. The formula itself sees `Value<T>`.
struct Half {};                          // f16 in the half that op_sel picks; the formula sees a float
struct Bf16 {};                          // likewise bf16
template <class T> struct Saturated {};  // integer result: the formula returns int64_t, clamp saturates to T
template <class T> struct Kept {};       // 16-bit result that op_sel[3] places and that leaves the other half alone
template <class T> struct Old {};        // source read from the destination register (v_fmac, v_dot2c)
template <class T> struct Amount {};     // unsigned source of which only the low log2(bits of T) bits are read
struct ClampedF32 {};                    // f32 source to which clamp applies, for results that have no clamp of their own
struct U24 {};                           // the low 24 bits, zero-extended
struct I24 {};                           // ... sign-extended

template <class T> struct ValueOf { using type = T; };
template <> struct ValueOf<Half> { using type = float; };
template <> struct ValueOf<Bf16> { using type = float; };
template <class T> struct ValueOf<Saturated<T>> { using type = int64_t; };
template <class T> struct ValueOf<Kept<T>> : ValueOf<T> {};
template <class T> struct ValueOf<Old<T>> : ValueOf<T> {};
template <class T> struct ValueOf<Amount<T>> { using type = uint32_t; };
template <> struct ValueOf<ClampedF32> { using type = float; };
template <> struct ValueOf<U24> { using type = uint32_t; };
template <> struct ValueOf<I24> { using type = int32_t; };
template <class T> using Value = typename ValueOf<T>::type;

template <class T> constexpr int words_of = sizeof(Value<T>) > 4 ? 2 : 1;
template <class T> constexpr int words_of<Saturated<T>> = words_of<T>;
template <class T> constexpr int words_of<Kept<T>> = 1;

template <class T> constexpr bool is_old = false;
template <class T> constexpr bool is_old<Old<T>> = true;
template <class T> constexpr bool is_kept = false;
template <class T> constexpr bool is_kept<Kept<T>> = true;

// Whether modifiers or the mode can change how T is read or written.
template <class T> constexpr bool is_modifiable = std::is_floating_point_v<T> || sizeof(Value<T>) == 2;
template <> inline constexpr bool is_modifiable<Half> = true;
template <> inline constexpr bool is_modifiable<Bf16> = true;
template <> inline constexpr bool is_modifiable<ClampedF32> = true;
template <class T> constexpr bool is_modifiable<Saturated<T>> = true;
template <class T> constexpr bool is_modifiable<Kept<T>> = true;
template <class T> constexpr bool is_modifiable<Old<T>> = is_modifiable<T>;

inline uint64_t join(const Lanes* s, int lane) { return s[0][lane] | uint64_t{s[1][lane]} << 32; }
inline void split(Lanes* d, int lane, uint64_t value) {
  d[0][lane] = static_cast<uint32_t>(value);
  d[1][lane] = static_cast<uint32_t>(value >> 32);
}

// v_lshl_add_u64 shifts by 0 to 4; other amounts count as 0.
inline uint32_t shift_of_lshl_add_u64(uint32_t amount) { return (amount & 7) <= 4 ? amount & 7 : 0; }

// --- sources ---------------------------------------------------------------------------------------------------------

template <class T, bool Plain> struct Source {  // integers of 16, 32 and 64 bits
  int shift = 0;
  Source(const Modifiers& m, const Mode&, int i) : shift(!Plain && sizeof(T) == 2 && (m.op_sel >> i & 1) ? 16 : 0) {}
  T operator()(const Lanes* s, int lane) const {
    if constexpr (sizeof(T) == 8) return static_cast<T>(join(s, lane));
    else if constexpr (sizeof(T) == 4) return static_cast<T>(s[0][lane]);
    else return static_cast<T>(s[0][lane] >> shift);
  }
};

template <class T> struct Source<Old<T>, true> : Source<T, true> {
  using Source<T, true>::Source;
};
template <class T> struct Source<Old<T>, false> : Source<T, false> {
  using Source<T, false>::Source;
};
template <class T, bool Plain> struct Source<Amount<T>, Plain> {
  Source(const Modifiers&, const Mode&, int) {}
  uint32_t operator()(const Lanes* s, int lane) const { return s[0][lane] & (8 * sizeof(T) - 1); }
};
template <bool Plain> struct Source<U24, Plain> {
  Source(const Modifiers&, const Mode&, int) {}
  uint32_t operator()(const Lanes* s, int lane) const { return s[0][lane] & 0xffffff; }
};
template <bool Plain> struct Source<I24, Plain> {
  Source(const Modifiers&, const Mode&, int) {}
  int32_t operator()(const Lanes* s, int lane) const { return static_cast<int32_t>(s[0][lane] << 8) >> 8; }
};

// A floating-point pattern of type Bits after abs, neg and the flush of input denormals.
template <class Bits, Bits Sign, Bits Exponent> struct FloatBits {
  Bits keep = static_cast<Bits>(~Bits{0}), flip = 0;
  bool flush = false;
  FloatBits() = default;
  FloatBits(const Modifiers& m, int i, bool flush) : flush(flush) {
    if (m.abs >> i & 1) keep = static_cast<Bits>(~Sign);
    if (m.neg >> i & 1) flip = Sign;
  }
  Bits operator()(Bits bits) const {
    Bits b = static_cast<Bits>((bits & keep) ^ flip);
    return flush && (b & Exponent) == 0 ? static_cast<Bits>(b & Sign) : b;
  }
};

template <bool Plain> struct Source<float, Plain> {
  FloatBits<uint32_t, kSign32, kExponent32> bits;
  Source(const Modifiers& m, const Mode& mode, int i) {
    if constexpr (!Plain) bits = {m, i, !(mode.fp32_denorm & 1)};
  }
  float operator()(const Lanes* s, int lane) const {
    return std::bit_cast<float>(Plain ? s[0][lane] : bits(s[0][lane]));
  }
};
template <bool Plain> struct Source<double, Plain> {
  FloatBits<uint64_t, kSign64, kExponent64> bits;
  Source(const Modifiers& m, const Mode& mode, int i) {
    if constexpr (!Plain) bits = {m, i, !(mode.fp16_64_denorm & 1)};
  }
  double operator()(const Lanes* s, int lane) const {
    return std::bit_cast<double>(Plain ? join(s, lane) : bits(join(s, lane)));
  }
};
template <bool Plain> struct Source<Half, Plain> {
  FloatBits<uint16_t, kSign16, kExponent16> bits;
  int shift = 0;
  Source(const Modifiers& m, const Mode& mode, int i) {
    if constexpr (!Plain) bits = {m, i, !(mode.fp16_64_denorm & 1)}, shift = m.op_sel >> i & 1 ? 16 : 0;
  }
  float operator()(const Lanes* s, int lane) const {
    return half_to_float(Plain ? static_cast<uint16_t>(s[0][lane]) : bits(static_cast<uint16_t>(s[0][lane] >> shift)));
  }
};
template <bool Plain> struct Source<Bf16, Plain> {
  FloatBits<uint16_t, kSign16, kExponentBf16> bits;
  int shift = 0;
  Source(const Modifiers& m, const Mode&, int i) {
    if constexpr (!Plain) bits = {m, i, false}, shift = m.op_sel >> i & 1 ? 16 : 0;
  }
  float operator()(const Lanes* s, int lane) const {
    return bf16_to_float(Plain ? static_cast<uint16_t>(s[0][lane]) : bits(static_cast<uint16_t>(s[0][lane] >> shift)));
  }
};

// --- results ---------------------------------------------------------------------------------------------------------

template <class T, bool Plain> struct Result {  // integers; 16-bit results clear the high half
  Result(const Modifiers&, const Mode&) {}
  void operator()(Lanes* d, int lane, T value) const {
    if constexpr (sizeof(T) == 8) split(d, lane, static_cast<uint64_t>(value));
    else if constexpr (sizeof(T) == 2) d[0][lane] = static_cast<uint16_t>(value);
    else d[0][lane] = static_cast<uint32_t>(value);
  }
};

template <class T, bool Plain> struct Result<Saturated<T>, Plain> {
  bool clamp;
  Result(const Modifiers& m, const Mode&) : clamp(!Plain && m.clamp) {}
  T saturate(int64_t value) const {
    using Limits = std::numeric_limits<T>;
    if (!clamp) return static_cast<T>(value);
    return static_cast<T>(value < Limits::min() ? Limits::min() : value > Limits::max() ? Limits::max() : value);
  }
  void operator()(Lanes* d, int lane, int64_t value) const {
    Result<T, Plain>({}, {})(d, lane, saturate(value));
  }
};

// omod, clamp and the flush of output denormals. omod is ignored in IEEE mode and while output denormals are kept.
template <class F> struct Finish {
  F factor = 1;
  bool clamp = false, dx10 = false, flush = false;
  Finish() = default;
  Finish(const Modifiers& m, bool keep_denormals, const Mode& mode)
      : clamp(m.clamp), dx10(mode.dx10_clamp), flush(!keep_denormals) {
    constexpr F kFactor[4] = {1, 2, 4, F(0.5)};
    if (flush && !mode.ieee) factor = kFactor[m.omod & 3];
  }
  F operator()(F x) const {
    x = factor == 1 ? x : x * factor;
    if (clamp) {
      if (dx10 && x != x) x = 0;
      x = x < 0 ? F(0) : x > 1 ? F(1) : x;
    }
    return x;
  }
};

template <bool Plain> struct Source<ClampedF32, Plain> {
  Source<float, Plain> inner;
  Finish<float> finish;
  Source(const Modifiers& m, const Mode& mode, int i) : inner(m, mode, i) {
    if constexpr (!Plain) finish = {{.clamp = m.clamp}, true, mode};
  }
  float operator()(const Lanes* s, int lane) const { return Plain ? inner(s, lane) : finish(inner(s, lane)); }
};

template <bool Plain> struct Result<float, Plain> {
  Finish<float> finish;
  Result(const Modifiers& m, const Mode& mode) {
    if constexpr (!Plain) finish = {m, (mode.fp32_denorm & 2) != 0, mode};
  }
  void operator()(Lanes* d, int lane, float x) const {
    uint32_t bits = std::bit_cast<uint32_t>(Plain ? x : finish(x));
    if (!Plain && finish.flush && (bits & kExponent32) == 0) bits &= kSign32;
    d[0][lane] = bits;
  }
};
template <bool Plain> struct Result<double, Plain> {
  Finish<double> finish;
  Result(const Modifiers& m, const Mode& mode) {
    if constexpr (!Plain) finish = {m, (mode.fp16_64_denorm & 2) != 0, mode};
  }
  void operator()(Lanes* d, int lane, double x) const {
    uint64_t bits = std::bit_cast<uint64_t>(Plain ? x : finish(x));
    if (!Plain && finish.flush && (bits & kExponent64) == 0) bits &= kSign64;
    split(d, lane, bits);
  }
};
template <bool Plain> struct Result<Half, Plain> {
  Finish<float> finish;
  bool stop_at_max = false;
  Result(const Modifiers& m, const Mode& mode) {
    if constexpr (!Plain) finish = {m, (mode.fp16_64_denorm & 2) != 0, mode}, stop_at_max = mode.fp16_overflow;
  }
  uint16_t encode(float x) const {
    if constexpr (Plain) return float_to_half(x);
    const float y = finish(x);
    const uint16_t bits = stop_at_max ? limited_half(y) : float_to_half(y);
    return finish.flush && (bits & kExponent16) == 0 ? bits & kSign16 : bits;
  }
  void operator()(Lanes* d, int lane, float x) const { d[0][lane] = encode(x); }
};

template <class T, bool Plain> struct Result<Kept<T>, Plain> {
  Result<T, Plain> inner;
  bool high;
  Result(const Modifiers& m, const Mode& mode) : inner(m, mode), high(!Plain && (m.op_sel & 8)) {}
  void operator()(Lanes* d, int lane, Value<T> value) const {
    Lanes one;
    inner(&one, lane, value);
    uint32_t bits = one[lane] & 0xffff;
    d[0][lane] = high ? (d[0][lane] & 0xffff) | bits << 16 : (d[0][lane] & 0xffff0000) | bits;
  }
};

// --- kernels ---------------------------------------------------------------------------------------------------------

inline bool is_plain(const Modifiers& m, const Mode& mode) {
  return (m.neg | m.abs | m.omod | m.op_sel | m.clamp | mode.round32 | mode.round16_64 | mode.fp16_overflow) == 0 &&
         (mode.fp32_denorm & mode.fp16_64_denorm & 3) == 3;
}

template <class Signature, auto F> struct Kernel;
template <class D, class... S, auto F> struct Kernel<D(S...), F> {
  static constexpr bool kModifiable = is_modifiable<D> || (is_modifiable<S> || ...);

  static void run(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
    const Lanes* s[3] = {s0, s1, s2};
    if (!kModifiable || is_plain(m, mode)) return loop<true>(d, s, m, mode, std::index_sequence_for<S...>{});
    RoundingScope rounding(std::is_same_v<D, float> ? mode.round32 : mode.round16_64);
    loop<!kModifiable>(d, s, m, mode, std::index_sequence_for<S...>{});
  }

  template <bool Plain, size_t... I>
  static void loop(Lanes* __restrict d, const Lanes* const (&s)[3], const Modifiers& m, const Mode& mode,
                   std::index_sequence<I...>) {
    const Result<D, Plain> result(m, mode);
    const auto sources = std::make_tuple(Source<S, Plain>(m, mode, I)...);
    const Lanes* from[sizeof...(S)] = {(is_old<S> ? static_cast<const Lanes*>(d) : s[I])...};
    for (int lane = 0; lane < kLanes; ++lane) {
      if constexpr (std::is_invocable_v<decltype(F), Value<S>..., const Mode&>)
        result(d, lane, F(std::get<I>(sources)(from[I], lane)..., mode));
      else
        result(d, lane, F(std::get<I>(sources)(from[I], lane)...));
    }
  }
};

}  // namespace arith
