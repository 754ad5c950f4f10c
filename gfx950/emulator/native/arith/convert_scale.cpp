// v_cvt_scalef32_*: conversions to and from fp8, bf8, fp6, bf6 and fp4 with a block scale.
//
// The scale is the power of two in the exponent field of an f32 (255: NaN). Widening multiplies by it, narrowing divides.
// Narrow values sit in the bytes or halves that op_sel picks: [1:0] or [0] of a source, [3:2] or [3] of the destination,
// whose other bits stay. Stochastic forms take their random bits from s1, advanced by v_prng_b32 for each further value.
#include "family.hpp"
#include "minifloat.hpp"

namespace arith {
namespace {

using u32 = uint32_t;

double widening_factor(u32 scale) { return e8m0(scale >> 23 & 255); }
// As a float: what a result loses to f32's range is beyond every narrow format's.
float narrowing_factor(u32 scale) { return static_cast<float>(1 / widening_factor(scale)); }

u32 flush(u32 bits, bool keep) { return keep || bits & kExponent32 ? bits : bits & kSign32; }

// Wide element types: the i-th value of a lane's registers. Only f32 denormals follow the mode.
struct F32Values {
  static constexpr int kPerWord = 1;
  static float read(const Lanes* s, int lane, int i, const Mode& mode) {
    return std::bit_cast<float>(flush(s[i][lane], mode.fp32_denorm & 1));
  }
  static void write(Lanes* d, int lane, int i, double x, const Mode& mode) {
    d[i][lane] = flush(std::bit_cast<u32>(static_cast<float>(x)), mode.fp32_denorm & 2);
  }
};
template <class Half> struct HalfValues {
  static constexpr int kPerWord = 2;
  static float read(const Lanes* s, int lane, int i, const Mode&) {
    return Half::decode(static_cast<uint16_t>(s[i / 2][lane] >> 16 * (i & 1)));
  }
  static void write(Lanes* d, int lane, int i, double x, const Mode& mode) {
    const u32 bits = Half::encode(static_cast<float>(x), mode);
    d[i / 2][lane] = i & 1 ? pack_halves(d[i / 2][lane], bits) : bits;
  }
};
struct F16Codec {
  static float decode(uint16_t bits) { return half_to_float(bits); }
  static uint16_t encode(float x, const Mode& mode) { return mode.fp16_overflow ? limited_half(x) : float_to_half(x); }
};
struct Bf16Codec {
  static float decode(uint16_t bits) { return bf16_to_float(bits); }
  static uint16_t encode(float x, const Mode&) { return float_to_bf16(x); }
};
using F16Values = HalfValues<F16Codec>;
using Bf16Values = HalfValues<Bf16Codec>;

// abs and neg of source 0, to all its values.
float with_sign(float x, const Modifiers& m) {
  x = m.abs & 1 ? std::fabs(x) : x;
  return m.neg & 1 ? -x : x;
}

// Where narrow values sit in a 32-bit register: the bit offset by op_sel, for fields of 8 or 16 bits.
template <int FieldBits> int source_offset(const Modifiers& m) {
  return FieldBits == 8 ? 8 * (m.op_sel & 3) : 16 * (m.op_sel & 1);
}
template <int FieldBits> int result_offset(const Modifiers& m) {
  return FieldBits == 8 ? 8 * (m.op_sel >> 2 & 3) : 16 * (m.op_sel >> 3 & 1);
}
template <int FieldBits> u32 field_mask() { return (1u << FieldBits) - 1; }

template <int FieldBits> u32 source_mask(int source, const Modifiers& m) {
  return source == 0 ? field_mask<FieldBits>() << source_offset<FieldBits>(m) : kExponent32;
}
template <int FieldBits> u32 result_mask(int, const Modifiers& m) {
  return field_mask<FieldBits>() << result_offset<FieldBits>(m);
}

// --- one or two values ----------------------------------------------------------------------------------------------------------

template <class Format, class Wide, int Count>
void widen(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers& m, const Mode& mode) {
  const int offset = source_offset<Count * Format::kBits>(m);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < Count; ++i) {
      const u32 code = s0[0][lane] >> (offset + i * Format::kBits) & (Format::kSign | Format::kMagnitude);
      Wide::write(d, lane, i, Format::decode(code) * widening_factor(s1[0][lane]), mode);
    }
}

// One f16, into the half that op_sel[3] picks.
template <class Format>
void widen_f16(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers& m, const Mode& mode) {
  Lanes single;
  widen<Format, F16Values, 1>(&single, s0, s1, nullptr, m, mode);
  for (int lane = 0; lane < kLanes; ++lane)
    d[0][lane] = m.op_sel & 8 ? pack_halves(d[0][lane], single[lane]) : pack_halves(single[lane], d[0][lane] >> 16);
}

template <class Format, int Count>
void place(Lanes* d, int lane, const Modifiers& m, u32 codes) {
  constexpr int kField = Count * Format::kBits;
  const int offset = result_offset<kField>(m);
  d[0][lane] = (d[0][lane] & ~(field_mask<kField>() << offset)) | codes << offset;
}

// Two f32 in s0 and s1, scale in s2.
template <class Format>
void narrow_f32(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  const Source<float, false> low(m, mode, 0), high(m, mode, 1);
  for (int lane = 0; lane < kLanes; ++lane) {
    const float factor = narrowing_factor(s2[0][lane]);
    place<Format, 2>(d, lane, m, Format::encode(low(s0, lane) * factor, mode.fp16_overflow) |
                                     Format::encode(high(s1, lane) * factor, mode.fp16_overflow) << Format::kBits);
  }
}
// Two packed values in s0, scale in s1.
template <class Format, class Wide>
void narrow_packed(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers& m, const Mode& mode) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const float factor = narrowing_factor(s1[0][lane]);
    u32 codes = 0;
    for (int i = 0; i < 2; ++i)
      codes |= Format::encode(with_sign(Wide::read(s0, lane, i, mode), m) * factor, mode.fp16_overflow) << i * Format::kBits;
    place<Format, 2>(d, lane, m, codes);
  }
}
// Values in s0, random bits in s1, scale in s2.
template <class Format, class Wide, int Count>
void narrow_stochastic(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  const int first = Wide::kPerWord == 2 && Count == 1 ? m.op_sel & 1 : 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const float factor = narrowing_factor(s2[0][lane]);
    u32 random = s1[0][lane], codes = 0;
    for (int i = 0; i < Count; ++i, random = next_random(random)) {
      const float x = with_sign(Wide::read(s0, lane, first + i, mode), m) * factor;
      codes |= Format::encode_stochastic(x, random, mode.fp16_overflow) << i * Format::kBits;
    }
    place<Format, Count>(d, lane, m, codes);
  }
}

// --- 32 values ----------------------------------------------------------------------------------------------------------------------

constexpr int kBlock = 32;

template <class Format, class Wide>
void widen_block(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers&, const Mode& mode) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const double factor = widening_factor(s1[0][lane]);
    for (int i = 0; i < kBlock; ++i)
      Wide::write(d, lane, i, Format::decode(extract_bits<Format::kBits>(s0, lane, i * Format::kBits)) * factor, mode);
  }
}

// One lane's block: value i is `value(i)` times the factor, rounded by `encode`.
template <class Format, class Value, class Encode> void put_block(Lanes* d, int lane, u32 scale, Value&& value, Encode&& encode) {
  const float factor = narrowing_factor(scale);
  for (int w = 0; w < kBlock * Format::kBits / 32; ++w) d[w][lane] = 0;
  for (int i = 0; i < kBlock; ++i) deposit_bits<Format::kBits>(d, lane, i * Format::kBits, encode(value(i) * factor));
}

template <class Format, class Wide>
void narrow_block(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers&, const Mode& mode) {
  for (int lane = 0; lane < kLanes; ++lane)
    put_block<Format>(d, lane, s1[0][lane], [&](int i) { return Wide::read(s0, lane, i, mode); },
                      [](float x) { return Format::encode(x, true); });
}

// Sixteen f32 in each of s0 and s1, interleaved in the result.
template <class Format>
void narrow_two_blocks(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers&, const Mode& mode) {
  for (int lane = 0; lane < kLanes; ++lane)
    put_block<Format>(d, lane, s2[0][lane], [&](int i) { return F32Values::read(i & 1 ? s1 : s0, lane, i / 2, mode); },
                      [](float x) { return Format::encode(x, true); });
}

template <class Format, class Wide>
void narrow_block_stochastic(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers&,
                             const Mode& mode) {
  for (int lane = 0; lane < kLanes; ++lane) {
    u32 random = s1[0][lane];
    put_block<Format>(d, lane, s2[0][lane], [&](int i) { return Wide::read(s0, lane, i, mode); }, [&](float x) {
      const u32 code = Format::encode_stochastic(x, random, true);
      random = next_random(random);
      return code;
    });
  }
}

// --- descriptions ----------------------------------------------------------------------------------------------------------------------

struct Shape {
  int dst_words, s0_words, s1_words, s2_words;  // 0: no such source
};

Op scale_op(const char* name, LaneFn run, Shape shape, BitMaskFn read_mask = nullptr, BitMaskFn write_mask = nullptr) {
  const int words[3] = {shape.s0_words, shape.s1_words, shape.s2_words};
  Op op{};
  op.name = name;
  op.kind = Kind::Lane;
  op.dst_words = static_cast<uint8_t>(shape.dst_words);
  for (int i = 0; i < 3 && words[i]; ++i) {
    op.src_words[i] = static_cast<uint8_t>(words[i]);
    op.src_type[i] = words[i] == 1 ? SrcType::B32 : words[i] == 2 ? SrcType::B64 : SrcType::Wide;
    op.src_count = static_cast<uint8_t>(i + 1);
  }
  op.lane = run;
  op.read_mask = read_mask;
  op.write_mask = write_mask;
  op.reads_dst = write_mask != nullptr;
  return op;
}

// FORMAT is a C++ type, format the part of the mnemonic that names it.
#define BYTE_OPS(FORMAT, format)                                                                                         \
  scale_op("v_cvt_scalef32_f32_" format, widen<FORMAT, F32Values, 1>, kUnary, source_mask<8>),                           \
  scale_op("v_cvt_scalef32_f16_" format, widen_f16<FORMAT>, kUnary, source_mask<8>, write_selected_half),                \
  PAIR_OPS(FORMAT, format, 16),                                                                                          \
  scale_op("v_cvt_scalef32_sr_" format "_f32", narrow_stochastic<FORMAT, F32Values, 1>, kTernary, nullptr, result_mask<8>), \
  scale_op("v_cvt_scalef32_sr_" format "_f16", narrow_stochastic<FORMAT, F16Values, 1>, kTernary, nullptr, result_mask<8>), \
  scale_op("v_cvt_scalef32_sr_" format "_bf16", narrow_stochastic<FORMAT, Bf16Values, 1>, kTernary, nullptr, result_mask<8>)

// Two values in a field of FIELD bits.
#define PAIR_OPS(FORMAT, format, FIELD)                                                                                  \
  scale_op("v_cvt_scalef32_pk_f32_" format, widen<FORMAT, F32Values, 2>, kPair, source_mask<FIELD>),                     \
  scale_op("v_cvt_scalef32_pk_f16_" format, widen<FORMAT, F16Values, 2>, kUnary, source_mask<FIELD>),                    \
  scale_op("v_cvt_scalef32_pk_bf16_" format, widen<FORMAT, Bf16Values, 2>, kUnary, source_mask<FIELD>),                  \
  scale_op("v_cvt_scalef32_pk_" format "_f32", narrow_f32<FORMAT>, kTernary, nullptr, result_mask<FIELD>),               \
  scale_op("v_cvt_scalef32_pk_" format "_f16", narrow_packed<FORMAT, F16Values>, kUnary, nullptr, result_mask<FIELD>),   \
  scale_op("v_cvt_scalef32_pk_" format "_bf16", narrow_packed<FORMAT, Bf16Values>, kUnary, nullptr, result_mask<FIELD>)

#define BLOCK_OPS(FORMAT, format)                                                                                        \
  scale_op("v_cvt_scalef32_pk32_f32_" format, widen_block<FORMAT, F32Values>, {32, 6, 1, 0}),                            \
  scale_op("v_cvt_scalef32_pk32_f16_" format, widen_block<FORMAT, F16Values>, {16, 6, 1, 0}),                            \
  scale_op("v_cvt_scalef32_pk32_bf16_" format, widen_block<FORMAT, Bf16Values>, {16, 6, 1, 0}),                          \
  scale_op("v_cvt_scalef32_2xpk16_" format "_f32", narrow_two_blocks<FORMAT>, {6, 16, 16, 1}),                           \
  scale_op("v_cvt_scalef32_pk32_" format "_f16", narrow_block<FORMAT, F16Values>, {6, 16, 1, 0}),                        \
  scale_op("v_cvt_scalef32_pk32_" format "_bf16", narrow_block<FORMAT, Bf16Values>, {6, 16, 1, 0}),                      \
  scale_op("v_cvt_scalef32_sr_pk32_" format "_f32", narrow_block_stochastic<FORMAT, F32Values>, {6, 32, 1, 1}),          \
  scale_op("v_cvt_scalef32_sr_pk32_" format "_f16", narrow_block_stochastic<FORMAT, F16Values>, {6, 16, 1, 1}),          \
  scale_op("v_cvt_scalef32_sr_pk32_" format "_bf16", narrow_block_stochastic<FORMAT, Bf16Values>, {6, 16, 1, 1})

}  // namespace

OpList convert_scale_ops() {
  constexpr Shape kUnary{1, 1, 1, 0}, kPair{2, 1, 1, 0}, kTernary{1, 1, 1, 1}, kWideTernary{1, 2, 1, 1};
  return {
      BYTE_OPS(Fp8, "fp8"),
      BYTE_OPS(Bf8, "bf8"),
      PAIR_OPS(Fp4, "fp4", 8),
      scale_op("v_cvt_scalef32_sr_pk_fp4_f32", narrow_stochastic<Fp4, F32Values, 2>, kWideTernary, nullptr, result_mask<8>),
      scale_op("v_cvt_scalef32_sr_pk_fp4_f16", narrow_stochastic<Fp4, F16Values, 2>, kTernary, nullptr, result_mask<8>),
      scale_op("v_cvt_scalef32_sr_pk_fp4_bf16", narrow_stochastic<Fp4, Bf16Values, 2>, kTernary, nullptr, result_mask<8>),
      BLOCK_OPS(Fp6, "fp6"),
      BLOCK_OPS(Bf6, "bf6"),
  };
}

}  // namespace arith
