// Matrix operations: D = A B + C.
//
// Precision: products of f16, bf16, fp8, bf8, fp6, bf6 and fp4 (with their block scales) are exact; they and C are summed in
// double and rounded once to f32. The hardware's order of summation and inner width are not published; one rounding is
// what it aims at, and what it differs by is below the tolerance of any kernel test. f32 and f64 are chains of fused
// multiply-adds in order of k. i8 sums, exact in double, wrap at the end. Denormals are kept, except that f32 A and B follow the wave's mode
// (CDNA4 ISA, 7.4). EXEC does not matter.
#include <cmath>
#include <cstring>

#include "family.hpp"
#include "matrix.hpp"
#include "minifloat.hpp"

namespace arith {
namespace {

constexpr int kMaxK = 128, kMaxSide = 32;

// Short loops over the lanes of a row: clang would unroll them first and then find nothing to vectorise.
#ifdef __clang__
#define VECTORISE _Pragma("clang loop vectorize(enable) unroll(disable)")
#else
#define VECTORISE
#endif

// --- decoding ----------------------------------------------------------------------------------------------------------------

struct F32Element {
  using Value = float;
  static constexpr int kBits = 32;
  static float decode(uint32_t bits) { return std::bit_cast<float>(bits); }
};
struct F16Element {
  using Value = double;
  static constexpr int kBits = 16;
  static double decode(uint32_t bits) { return half_to_float(static_cast<uint16_t>(bits)); }
};
struct Bf16Element {
  using Value = double;
  static constexpr int kBits = 16;
  static double decode(uint32_t bits) { return bf16_to_float(static_cast<uint16_t>(bits)); }
};
struct I8Element {
  using Value = double;
  static constexpr int kBits = 8;
  static double decode(uint32_t bits) { return static_cast<int8_t>(bits); }
};
template <class Format> struct MiniElement {
  using Value = double;
  static constexpr int kBits = Format::kBits;
  static double decode(uint32_t bits) { return Format::decode(bits); }
};

struct F64Element {
  using Value = double;
};

// The j-th value of each of Side lanes from `lane` on.
template <int Side, class E> void decode_run(const Lanes* s, int j, int lane, typename E::Value* __restrict out) {
  if constexpr (std::is_same_v<E, F64Element>)
    VECTORISE for (int i = 0; i < Side; ++i) out[i] = std::bit_cast<double>(join(s, lane + i));
  else
    VECTORISE for (int i = 0; i < Side; ++i) out[i] = E::decode(extract_bits<E::kBits>(s, lane + i, j * E::kBits));
}

// One block of A or B as an array [k][side], side = row of A or column of B.
template <class T> struct Panel {
  alignas(64) T value[kMaxK * kMaxSide];
};

// Copies the lanes that blgp makes B read into the places where B is looked for.
void permute_lanes(Lanes* to, const Lanes* from, int words, int blgp) {
  for (int w = 0; w < words; ++w)
    for (int lane = 0; lane < kLanes; ++lane) to[w][lane] = from[w][permuted_lane(lane, blgp)];
}

// Decodes one block of an operand, `per_lane` values from each lane.
template <class T> using Loader = void (*)(const Lanes* s, const Layout&, int block, int per_lane, Panel<T>&);

template <int Side, class E>
void load_panel(const Lanes* s, const Layout& layout, int block, int per_lane, Panel<typename E::Value>& panel) {
  for (int group = 0; group < layout.groups; ++group)
    for (int j = 0; j < per_lane; ++j)
      decode_run<Side, E>(s, j, layout.source_lane(block, group, 0), panel.value + (group * per_lane + j) * Side);
}

template <int Side, class T> Loader<T> loader(Element e) {
  if constexpr (std::is_same_v<T, float>) return load_panel<Side, F32Element>;
  else switch (e) {
      case Element::F64: return load_panel<Side, F64Element>;
      case Element::I8: return load_panel<Side, I8Element>;
      case Element::F16: return load_panel<Side, F16Element>;
      case Element::BF16: return load_panel<Side, Bf16Element>;
      case Element::FP8: return load_panel<Side, MiniElement<Fp8>>;
      default: return load_panel<Side, MiniElement<Bf8>>;
    }
}

// --- products -----------------------------------------------------------------------------------------------------------------

template <class T> T multiply_add(T a, T b, T c);
template <> inline float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
template <> inline double multiply_add(double a, double b, double c) { return std::fma(a, b, c); }

// acc[i][n] += sum over k of a[k][i] b[k][n], four rows at a time so that their sums stay in registers.
template <int Side, class T> void multiply(T* acc, const T* a, const T* b, int k_count) {
  for (int i = 0; i < Side; i += 4) {
    T sum[4][Side];
    std::memcpy(sum, acc + i * Side, sizeof sum);
    for (int k = 0; k < k_count; ++k)
      for (int r = 0; r < 4; ++r)
        for (int n = 0; n < Side; ++n) sum[r][n] = multiply_add(a[k * Side + i + r], b[k * Side + n], sum[r][n]);
    std::memcpy(acc + i * Side, sum, sizeof sum);
  }
}

// The same for a sparse A: value e of row i meets the k-th row of B that `k_of` names; what A leaves out is not multiplied.
template <int Side, class T>
void multiply_sparse(T* acc, const T* a, const T* b, const uint8_t* k_of, int stored_count) {
  for (int i = 0; i < Side; ++i) {
    T sum[Side];
    std::memcpy(sum, acc + i * Side, sizeof sum);
    for (int e = 0; e < stored_count; ++e) {
      const T value = a[e * Side + i];
      const T* row = b + k_of[e * Side + i] * Side;
      for (int n = 0; n < Side; ++n) sum[n] = multiply_add(value, row[n], sum[n]);
    }
    std::memcpy(acc + i * Side, sum, sizeof sum);
  }
}

// --- C and D ------------------------------------------------------------------------------------------------------------------

enum class ResultType { F32, F64, I32 };

ResultType result_type(const MfmaShape& s) {
  return s.a == Element::F64 ? ResultType::F64 : s.a == Element::I8 ? ResultType::I32 : ResultType::F32;
}

template <ResultType R, class T> T read_result(const Lanes* c, int reg, int lane) {
  if constexpr (R == ResultType::F64) return static_cast<T>(std::bit_cast<double>(join(c + 2 * reg, lane)));
  else if constexpr (R == ResultType::I32) return static_cast<T>(static_cast<int32_t>(c[reg][lane]));
  else return static_cast<T>(std::bit_cast<float>(c[reg][lane]));
}
template <ResultType R, class T> void write_result(Lanes* d, int reg, int lane, T value) {
  if constexpr (R == ResultType::F64) split(d + 2 * reg, lane, std::bit_cast<uint64_t>(static_cast<double>(value)));
  else if constexpr (R == ResultType::I32) d[reg][lane] = static_cast<uint32_t>(static_cast<int64_t>(value));
  else d[reg][lane] = std::bit_cast<uint32_t>(static_cast<float>(value));
}

template <int Side, ResultType R, class T> void load_accumulator(const Lanes* c, int block, T* __restrict acc) {
  for (int i = 0; i < Side; ++i) {
    const auto [reg, lane] = result_place(Side, R == ResultType::F64, block, i);
    VECTORISE for (int n = 0; n < Side; ++n) acc[i * Side + n] = read_result<R, T>(c, reg, lane + n);
  }
}
template <int Side, ResultType R, class T>
void store_accumulator(Lanes* __restrict d, int block, const T* acc) {
  for (int i = 0; i < Side; ++i) {
    const auto [reg, lane] = result_place(Side, R == ResultType::F64, block, i);
    VECTORISE for (int n = 0; n < Side; ++n) write_result<R>(d, reg, lane + n, acc[i * Side + n]);
  }
}

template <class T, class F> void for_each_value(Panel<T>& panel, int count, F&& f) {
  for (int i = 0; i < count; ++i) panel.value[i] = f(panel.value[i]);
}

struct Sources {
  const Lanes *a, *b, *c, *extra0, *extra1;
};

// --- dense and sparse products of one element type each side --------------------------------------------------------------------

// Denormal and sign treatment of A and B that only f32 and f64 have.
template <class T> void adjust(Panel<T>& panel, int count, bool negate, bool flush) {
  if constexpr (std::is_same_v<T, float>) {
    if (flush) for_each_value(panel, count, [](float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; });
  } else if constexpr (std::is_same_v<T, double>) {
    if (negate) for_each_value(panel, count, [](double x) { return -x; });
  }
}

template <int Side, class T, ResultType R>
void dense(const MfmaShape& shape, Lanes* d, const Sources& s, const Modifiers& m, const Mode& mode) {
  const Layout layout(shape);
  const bool is_f64 = shape.a == Element::F64, flush = !(mode.fp32_denorm & 1);
  Panel<T> a, b;
  alignas(64) T acc[Side * Side];
  for (int block = 0; block < layout.blocks; ++block) {
    const int a_block = has_broadcasts(shape) ? broadcast_block(block, layout.blocks, m) : block;
    loader<Side, T>(shape.a)(s.a, layout, a_block, layout.per_lane, a);
    loader<Side, T>(shape.b)(s.b, layout, block, layout.per_lane, b);
    adjust(a, layout.k * Side, is_f64 && (m.blgp & 1), flush);
    adjust(b, layout.k * Side, is_f64 && (m.blgp & 2), flush);
    load_accumulator<Side, R>(s.c, block, acc);
    if (is_f64 && (m.blgp & 4))
      for (T& x : acc) x = -x;
    multiply<Side>(acc, a.value, b.value, layout.k);
    store_accumulator<Side, R>(d, block, acc);
  }
}

template <int Side, class T, ResultType R>
void sparse(const MfmaShape& shape, Lanes* d, const Sources& s, const Modifiers& m, const Mode&) {
  const Layout layout(shape);
  const int stored = layout.per_lane / 2;  // values of A in each lane
  Panel<T> a, b;
  uint8_t k_of[kMaxK / 2 * Side];
  alignas(64) T acc[Side * Side];
  loader<Side, T>(shape.a)(s.a, layout, 0, stored, a);
  loader<Side, T>(shape.b)(s.b, layout, 0, layout.per_lane, b);
  for (int group = 0; group < layout.groups; ++group)
    for (int e = 0; e < stored; ++e)
      for (int i = 0; i < Side; ++i) {
        const uint32_t index = s.extra0[0][layout.source_lane(0, group, i)];
        k_of[(group * stored + e) * Side + i] =
            static_cast<uint8_t>(group * layout.per_lane + e / 2 * 4 + sparse_position(index, e, stored, m));
      }
  load_accumulator<Side, R>(s.c, 0, acc);
  multiply_sparse<Side>(acc, a.value, b.value, k_of, layout.k / 2);
  store_accumulator<Side, R>(d, 0, acc);
}

// --- F8F6F4 with block scales ----------------------------------------------------------------------------------------------------

template <int Side, class Format>
void load_mini_panel(const Lanes* s, int format, const Layout& layout, Panel<double>& panel) {
  for (int group = 0; group < layout.groups; ++group)
    for (int j = 0; j < 32; ++j)
      decode_run<Side, MiniElement<Format>>(s, j, group * Side, panel.value + f8f6f4_k(format, group, j, layout.k) * Side);
}

template <int Side> void load_formatted(const Lanes* s, int format, const Layout& layout, Panel<double>& panel) {
  switch (format) {
    case 0: return load_mini_panel<Side, Fp8>(s, format, layout, panel);
    case 1: return load_mini_panel<Side, Bf8>(s, format, layout, panel);
    case 2: return load_mini_panel<Side, Fp6>(s, format, layout, panel);
    case 3: return load_mini_panel<Side, Bf6>(s, format, layout, panel);
    default: return load_mini_panel<Side, Fp4>(s, format, layout, panel);
  }
}

// The scale of row (or column) i and k = 32 g ... 32 g + 31 is in lane g * side + i.
template <int Side> void apply_scales(Panel<double>& panel, const Lanes* scale, int shift, int k_count) {
  for (int block = 0; block < k_count / 32; ++block) {
    const int group = scale_group(32 * block, k_count);
    double factor[Side];
    for (int i = 0; i < Side; ++i) factor[i] = e8m0(scale[0][group * Side + i] >> shift & 255);
    for (int k = 32 * block; k < 32 * block + 32; ++k)
      VECTORISE for (int i = 0; i < Side; ++i) panel.value[k * Side + i] *= factor[i];
  }
}

template <int Side> void f8f6f4(const MfmaShape& shape, Lanes* d, const Sources& s, const Modifiers& m, const Mode&) {
  const Layout layout(shape);
  Panel<double> a, b;
  alignas(64) double acc[Side * Side];
  load_formatted<Side>(s.a, m.cbsz, layout, a);
  load_formatted<Side>(s.b, m.blgp, layout, b);
  if (s.extra0) apply_scales<Side>(a, s.extra0, scale_shift(0, m), layout.k);
  if (s.extra1) apply_scales<Side>(b, s.extra1, scale_shift(1, m), layout.k);
  load_accumulator<Side, ResultType::F32>(s.c, 0, acc);
  multiply<Side>(acc, a.value, b.value, layout.k);
  store_accumulator<Side, ResultType::F32>(d, 0, acc);
}

// --- choice of the instance -------------------------------------------------------------------------------------------------------

using Run = void (*)(const MfmaShape&, Lanes*, const Sources&, const Modifiers&, const Mode&);

template <class T, ResultType R> Run pick_side(const MfmaShape& s) {
  if (s.sparse) return s.m == 16 ? sparse<16, T, R> : sparse<32, T, R>;
  return s.m == 4 ? dense<4, T, R> : s.m == 16 ? dense<16, T, R> : dense<32, T, R>;
}

Run pick(const MfmaShape& s) {
  if (s.a == Element::F8F6F4) return s.m == 16 ? f8f6f4<16> : f8f6f4<32>;
  if (s.a == Element::F32) return pick_side<float, ResultType::F32>(s);
  switch (result_type(s)) {
    case ResultType::F64: return s.m == 4 ? dense<4, double, ResultType::F64> : dense<16, double, ResultType::F64>;
    case ResultType::I32: return pick_side<double, ResultType::I32>(s);
    default: return pick_side<double, ResultType::F32>(s);
  }
}

}  // namespace

void mfma(const Op& op, Lanes* d, const Lanes* a, const Lanes* b, const Lanes* c, const Lanes* extra0, const Lanes* extra1,
          const Modifiers& m, const Mode& mode) {
  Lanes permuted[8];
  Sources s{a, b, c, extra0, extra1};
  if (has_broadcasts(op.mfma) && m.blgp) {
    permute_lanes(permuted, b, op.src_words[1], m.blgp);
    s.b = permuted;
  }
  pick(op.mfma)(op.mfma, d, s, m, mode);
}

}  // namespace arith
