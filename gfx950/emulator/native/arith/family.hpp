// How the files of this folder declare their operations; `registry.cpp` joins them.
#pragma once
#include <vector>

#include "lanes.hpp"
#include "shadow.hpp"

namespace arith {

using OpList = std::vector<Op>;
OpList integer_ops();
OpList integer16_ops();
OpList bit_ops();
OpList sad_ops();
OpList carry_ops();
OpList float32_ops();
OpList float16_ops();
OpList float64_ops();
OpList division_ops();
OpList transcendental_ops();
OpList compare_ops();
OpList packed_ops();
OpList dot_ops();
OpList convert_ops();
OpList convert_scale_ops();
OpList mfma_ops();

template <class T> constexpr SrcType src_type_of = sizeof(Value<T>) == 8 ? SrcType::B64 : SrcType::B32;
template <> inline constexpr SrcType src_type_of<uint16_t> = SrcType::B16;
template <> inline constexpr SrcType src_type_of<int16_t> = SrcType::B16;
template <> inline constexpr SrcType src_type_of<float> = SrcType::F32;
template <> inline constexpr SrcType src_type_of<double> = SrcType::F64;
template <> inline constexpr SrcType src_type_of<ClampedF32> = SrcType::F32;
template <> inline constexpr SrcType src_type_of<Half> = SrcType::F16;
template <> inline constexpr SrcType src_type_of<Bf16> = SrcType::BF16;
template <> inline constexpr SrcType src_type_of<Amount<uint16_t>> = SrcType::B16;
template <class T> constexpr SrcType src_type_of<Old<T>> = SrcType::None;

inline uint32_t half_mask(bool high) { return high ? 0xffff0000u : 0x0000ffffu; }

// Bits that source `i` of type T reads from each of its words.
template <class T> struct BitsRead {
  static uint32_t mask(int i, const Modifiers& m) {
    constexpr bool kHalf = sizeof(Value<T>) == 2 || std::is_same_v<T, Half> || std::is_same_v<T, Bf16>;
    return kHalf ? half_mask(m.op_sel >> i & 1) : 0xffffffff;
  }
};
template <class T> struct BitsRead<Amount<T>> {
  static uint32_t mask(int, const Modifiers&) { return 8 * sizeof(T) - 1; }
};
template <> struct BitsRead<U24> {
  static uint32_t mask(int, const Modifiers&) { return 0xffffff; }
};
template <> struct BitsRead<I24> : BitsRead<U24> {};
template <class T> struct BitsRead<Old<T>> : BitsRead<T> {};

template <class... S> uint32_t read_mask_of(int source, const Modifiers& m) {
  constexpr BitMaskFn kMasks[] = {BitsRead<S>::mask...};
  return source < static_cast<int>(sizeof...(S)) ? kMasks[source](source, m) : 0xffffffff;
}

inline uint32_t write_selected_half(int, const Modifiers& m) { return half_mask(m.op_sel & 8); }

template <class D, class... S> constexpr Op describe(const char* name, Kind kind) {
  Op op{};
  op.name = name;
  op.kind = kind;
  op.dst_words = words_of<D>;
  const bool old[] = {is_old<S>...};
  const uint8_t words[] = {words_of<S>...};
  const SrcType types[] = {src_type_of<S>...};
  for (size_t i = 0; i < sizeof...(S); ++i) {
    op.reads_dst |= old[i];
    if (!old[i]) op.src_words[i] = words[i], op.src_type[i] = types[i], op.src_count = static_cast<uint8_t>(i + 1);
  }
  op.read_mask = read_mask_of<S...>;
  if (is_kept<D>) op.reads_dst = true, op.write_mask = write_selected_half;
  return op;
}

template <class Signature> struct DescribeLane;
template <class D, class... S> struct DescribeLane<D(S...)> {
  static constexpr Op make(const char* name) { return describe<D, S...>(name, Kind::Lane); }
};

// An operation that applies formula F to each lane.
template <class Signature, auto F> Op lane_op(const char* name, ShadowFn shadow = nullptr) {
  Op op = DescribeLane<Signature>::make(name);
  op.lane = Kernel<Signature, F>::run;
  op.shadow = shadow;
  return op;
}

}  // namespace arith
