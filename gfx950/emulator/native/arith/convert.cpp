// Conversions between types, without block scales.
#include "family.hpp"
#include "minifloat.hpp"

namespace arith {
namespace {

using u32 = uint32_t;
using i32 = int32_t;
using u16 = uint16_t;
using i16 = int16_t;

// Towards zero, saturating, NaN gives 0.
template <class To, class From> To truncate_to(From x) {
  using Limits = std::numeric_limits<To>;
  const double value = std::trunc(static_cast<double>(x));
  if (value != value) return 0;
  if (value <= Limits::min()) return Limits::min();
  return value >= Limits::max() ? Limits::max() : static_cast<To>(value);
}

// [-1, 1] to 16-bit integers, nearest even.
i16 to_snorm(float x) {
  const float limited = x != x ? 0 : std::clamp(x, -1.0f, 1.0f);
  return static_cast<i16>(__builtin_roundevenf(limited * 32767.0f));
}
u16 to_unorm(float x) {
  const float limited = x != x ? 0 : std::clamp(x, 0.0f, 1.0f);
  return static_cast<u16>(__builtin_roundevenf(limited * 65535.0f));
}
u32 to_u8(float x) {  // rounds as the mode says
  const float rounded = std::nearbyint(x);
  return x != x ? 0 : static_cast<u32>(std::clamp(rounded, 0.0f, 255.0f));
}

template <int N> u32 byte_of(u32 word) { return word >> (8 * N) & 255; }

u32 replace_byte(u32 word, u32 index, u32 byte) {
  const u32 shift = 8 * (index & 3);
  return (word & ~(255u << shift)) | byte << shift;
}

template <int Low, int High> u32 saturate_byte(i32 x) { return static_cast<u32>(std::clamp(x, Low, High)) & 255; }

template <class T> u32 saturate_half(int64_t x) {
  return static_cast<u16>(std::clamp<int64_t>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

// A formula whose rounding the instruction fixes, whatever the mode says for f16.
template <class Signature, auto F, uint8_t Round>
void fixed_rounding(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  Mode fixed = mode;
  fixed.round16_64 = Round;
  Kernel<Signature, F>::run(d, s0, s1, s2, m, fixed);
}
template <class Signature, auto F, uint8_t Round = 0> Op fixed_op(const char* name, ShadowFn shadow = nullptr) {
  Op op = lane_op<Signature, F>(name, shadow);
  op.lane = fixed_rounding<Signature, F, Round>;
  return op;
}

u32 pack_f16(float a, float b, const Mode& mode) {
  return mode.fp16_overflow ? pack_halves(limited_half(a), limited_half(b)) : pack_halves(float_to_half(a), float_to_half(b));
}
u32 pack_bf16(float a, float b) { return pack_halves(float_to_bf16(a), float_to_bf16(b)); }
template <class Format> u16 pack_fp8(float a, float b, const Mode& mode) {
  return static_cast<u16>(Format::encode(a, mode.fp16_overflow) | Format::encode(b, mode.fp16_overflow) << 8);
}

// v_cvt_f32_fp8 and v_cvt_pk_f32_fp8 read the low byte or half; SDWA picks another one.
template <class Format> void unpack_fp8_pair(Lanes* d, const Lanes* s0, const Lanes*, const Lanes*, const Modifiers& m,
                                             const Mode& mode) {
  const Result<float, false> result(m, mode);
  for (int lane = 0; lane < kLanes; ++lane) {
    result(d, lane, Format::decode(s0[0][lane] & 255));
    result(d + 1, lane, Format::decode(s0[0][lane] >> 8 & 255));
  }
}
template <class Format> Op unpack_pair_op(const char* name) {
  Op op = DescribeLane<uint64_t(u16)>::make(name);
  op.lane = unpack_fp8_pair<Format>;
  op.src_type[0] = SrcType::B32;
  op.read_mask = [](int, const Modifiers&) { return 0xffffu; };
  return op;
}

template <auto F> Op byte_op(const char* name, BitMaskFn read_mask) {
  Op op = lane_op<float(u32), F>(name);
  op.read_mask = read_mask;
  return op;
}

// Stochastic rounding into the byte of the destination that op_sel[3:2] picks.
uint32_t write_selected_byte(int, const Modifiers& m) { return 255u << 8 * (m.op_sel >> 2 & 3); }

template <class Format> void stochastic_byte(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers& m,
                                             const Mode& mode) {
  const Source<float, false> source(m, mode, 0);
  for (int lane = 0; lane < kLanes; ++lane)
    d[0][lane] = replace_byte(d[0][lane], m.op_sel >> 2,
                              Format::encode_stochastic(source(s0, lane), s1[0][lane], mode.fp16_overflow));
}
template <class Format> Op stochastic_byte_op(const char* name) {
  Op op = DescribeLane<u32(float, u32)>::make(name);
  op.lane = stochastic_byte<Format>;
  op.reads_dst = true;
  op.write_mask = write_selected_byte;
  return op;
}

// f32 to f16 or bf16: the bits to be dropped plus as many random ones, cut off.
u16 stochastic_bf16(float x, u32 random) {
  const u32 bits = std::bit_cast<u32>(x);
  if ((bits & kExponent32) == kExponent32) return float_to_bf16(x);
  return static_cast<u16>((bits + (random >> 16)) >> 16);
}
u16 stochastic_f16(float x, u32 random, const Mode& mode) {
  using F16 = MiniFloat<5, 10, 15, Specials::Ieee>;
  return static_cast<u16>(F16::encode_stochastic(x, random, mode.fp16_overflow && std::isfinite(x)));
}

void pkaccum_u8(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes*, const Modifiers& m, const Mode& mode) {
  const Source<float, false> source(m, mode, 0);
  RoundingScope rounding(mode.round32);
  for (int lane = 0; lane < kLanes; ++lane) d[0][lane] = replace_byte(d[0][lane], s1[0][lane], to_u8(source(s0, lane)));
}
Op pkaccum_op() {
  Op op = DescribeLane<u32(float, u32, Old<u32>)>::make("v_cvt_pkaccum_u8_f32");
  op.lane = pkaccum_u8;
  return op;
}

// Rounds to u8 by the f32 rounding mode.
void cvt_pk_u8(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers& m, const Mode& mode) {
  const Source<float, false> source(m, mode, 0);
  RoundingScope rounding(mode.round32);
  for (int lane = 0; lane < kLanes; ++lane)
    d[0][lane] = replace_byte(s2[0][lane], s1[0][lane], to_u8(source(s0, lane)));
}
Op cvt_pk_u8_op() {
  Op op = DescribeLane<u32(float, u32, u32)>::make("v_cvt_pk_u8_f32");
  op.lane = cvt_pk_u8;
  return op;
}

}  // namespace

OpList convert_ops() {
  using poison::half_per_source;
  auto low_byte = [](int, const Modifiers&) { return 255u; };
  return {
      lane_op<i32(float), truncate_to<i32, float>>("v_cvt_i32_f32"),
      lane_op<u32(float), truncate_to<u32, float>>("v_cvt_u32_f32"),
      lane_op<i32(double), truncate_to<i32, double>>("v_cvt_i32_f64"),
      lane_op<u32(double), truncate_to<u32, double>>("v_cvt_u32_f64"),
      lane_op<i16(Half), truncate_to<i16, float>>("v_cvt_i16_f16"),
      lane_op<u16(Half), truncate_to<u16, float>>("v_cvt_u16_f16"),
      lane_op<i32(float), [](float x) { return truncate_to<i32>(std::floor(x + 0.5f)); }>("v_cvt_rpi_i32_f32"),
      lane_op<i32(float), [](float x) { return truncate_to<i32>(std::floor(x)); }>("v_cvt_flr_i32_f32"),

      lane_op<float(i32), [](i32 x) { return static_cast<float>(x); }>("v_cvt_f32_i32"),
      lane_op<float(u32), [](u32 x) { return static_cast<float>(x); }>("v_cvt_f32_u32"),
      lane_op<double(i32), [](i32 x) { return static_cast<double>(x); }>("v_cvt_f64_i32"),
      lane_op<double(u32), [](u32 x) { return static_cast<double>(x); }>("v_cvt_f64_u32"),
      lane_op<Half(i16), [](i16 x) { return static_cast<float>(x); }>("v_cvt_f16_i16"),
      lane_op<Half(u16), [](u16 x) { return static_cast<float>(x); }>("v_cvt_f16_u16"),
      lane_op<float(u32), [](u32 x) { return static_cast<float>(static_cast<i32>(x << 28) >> 28) / 16; }>(
          "v_cvt_off_f32_i4"),

      lane_op<Half(float), [](float x) { return x; }>("v_cvt_f16_f32"),
      lane_op<float(Half), [](float x) { return x; }>("v_cvt_f32_f16"),
      lane_op<float(Bf16), [](float x) { return x; }>("v_cvt_f32_bf16"),
      lane_op<float(double), [](double x) { return static_cast<float>(x); }>("v_cvt_f32_f64"),
      lane_op<double(float), [](float x) { return static_cast<double>(x); }>("v_cvt_f64_f32"),

      byte_op<[](u32 x) { return static_cast<float>(byte_of<0>(x)); }>("v_cvt_f32_ubyte0", low_byte),
      byte_op<[](u32 x) { return static_cast<float>(byte_of<1>(x)); }>(
          "v_cvt_f32_ubyte1", [](int, const Modifiers&) { return 255u << 8; }),
      byte_op<[](u32 x) { return static_cast<float>(byte_of<2>(x)); }>(
          "v_cvt_f32_ubyte2", [](int, const Modifiers&) { return 255u << 16; }),
      byte_op<[](u32 x) { return static_cast<float>(byte_of<3>(x)); }>(
          "v_cvt_f32_ubyte3", [](int, const Modifiers&) { return 255u << 24; }),
      byte_op<[](u32 x) { return Fp8::decode(byte_of<0>(x)); }>("v_cvt_f32_fp8", low_byte),
      byte_op<[](u32 x) { return Bf8::decode(byte_of<0>(x)); }>("v_cvt_f32_bf8", low_byte),
      unpack_pair_op<Fp8>("v_cvt_pk_f32_fp8"),
      unpack_pair_op<Bf8>("v_cvt_pk_f32_bf8"),

      fixed_op<u32(ClampedF32, ClampedF32), pack_f16, 3>("v_cvt_pkrtz_f16_f32", half_per_source),
      fixed_op<u32(ClampedF32, ClampedF32), pack_f16>("v_cvt_pk_f16_f32", half_per_source),
      fixed_op<u32(ClampedF32, ClampedF32), pack_bf16>("v_cvt_pk_bf16_f32", half_per_source),
      fixed_op<Kept<u16>(float, float), pack_fp8<Fp8>>("v_cvt_pk_fp8_f32"),
      fixed_op<Kept<u16>(float, float), pack_fp8<Bf8>>("v_cvt_pk_bf8_f32"),
      stochastic_byte_op<Fp8>("v_cvt_sr_fp8_f32"),
      stochastic_byte_op<Bf8>("v_cvt_sr_bf8_f32"),
      fixed_op<Kept<u16>(float, u32), stochastic_f16>("v_cvt_sr_f16_f32"),
      fixed_op<Kept<u16>(float, u32), stochastic_bf16>("v_cvt_sr_bf16_f32"),

      lane_op<i16(Half), to_snorm>("v_cvt_norm_i16_f16"),
      lane_op<u16(Half), to_unorm>("v_cvt_norm_u16_f16"),
      lane_op<u32(float, float), [](float a, float b) { return pack_halves(static_cast<u16>(to_snorm(a)), to_snorm(b)); }>(
          "v_cvt_pknorm_i16_f32", half_per_source),
      lane_op<u32(float, float), [](float a, float b) { return pack_halves(to_unorm(a), to_unorm(b)); }>(
          "v_cvt_pknorm_u16_f32", half_per_source),
      lane_op<u32(Half, Half), [](float a, float b) { return pack_halves(static_cast<u16>(to_snorm(a)), to_snorm(b)); }>(
          "v_cvt_pknorm_i16_f16", half_per_source),
      lane_op<u32(Half, Half), [](float a, float b) { return pack_halves(to_unorm(a), to_unorm(b)); }>(
          "v_cvt_pknorm_u16_f16", half_per_source),
      lane_op<u32(i32, i32), [](i32 a, i32 b) { return pack_halves(saturate_half<i16>(a), saturate_half<i16>(b)); }>(
          "v_cvt_pk_i16_i32", half_per_source),
      lane_op<u32(u32, u32), [](u32 a, u32 b) { return pack_halves(saturate_half<u16>(a), saturate_half<u16>(b)); }>(
          "v_cvt_pk_u16_u32", half_per_source),
      cvt_pk_u8_op(),
      pkaccum_op(),

      lane_op<u32(u32), [](u32 x) {
        return saturate_byte<0, 255>(static_cast<i16>(x)) | saturate_byte<0, 255>(static_cast<i32>(x) >> 16) << 8;
      }>("v_sat_pk_u8_i16"),
      lane_op<Kept<u16>(i32, i32, Amount<u32>), [](i32 a, i32 b, u32 n) {
        return static_cast<u16>(saturate_byte<-128, 127>(a >> n) | saturate_byte<-128, 127>(b >> n) << 8);
      }>("v_ashr_pk_i8_i32"),
      lane_op<Kept<u16>(i32, i32, Amount<u32>), [](i32 a, i32 b, u32 n) {
        return static_cast<u16>(saturate_byte<0, 255>(a >> n) | saturate_byte<0, 255>(b >> n) << 8);
      }>("v_ashr_pk_u8_i32"),
  };
}

}  // namespace arith
