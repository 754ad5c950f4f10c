// Kernels of operations that read or write a lane mask beside their registers.
#pragma once
#include "family.hpp"
#include "masks.hpp"

namespace arith {

template <class T> struct WithFlag {
  T value;
  bool flag;
};

// Formula: (sources..., bool flag_in) -> WithFlag<result>.
template <class Signature, auto F> struct MaskKernel;
template <class D, class... S, auto F> struct MaskKernel<D(S...), F> {
  static uint64_t run(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, uint64_t mask, const Modifiers& m,
                      const Mode& mode) {
    const Lanes* s[3] = {s0, s1, s2};
    RoundingScope rounding(std::is_same_v<D, float> ? mode.round32 : std::is_same_v<D, double> ? mode.round16_64 : 0);
    return loop(d, s, mask, m, mode, std::index_sequence_for<S...>{});
  }
  template <size_t... I>
  static uint64_t loop(Lanes* __restrict d, const Lanes* const (&s)[3], uint64_t mask, const Modifiers& m,
                       const Mode& mode, std::index_sequence<I...>) {
    LaneFlags in, out;
    unpack_mask(mask, in);
    const Result<D, false> result(m, mode);
    const auto sources = std::make_tuple(Source<S, false>(m, mode, I)...);
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto [value, flag] = F(std::get<I>(sources)(s[I], lane)..., in[lane] != 0);
      result(d, lane, value);
      out[lane] = flag;
    }
    return pack_mask(out);
  }
};

enum MaskUse { kIn = 1, kOut = 2 };

template <class Signature, auto F> Op mask_op(const char* name, int use, ShadowFn shadow = nullptr) {
  Op op = DescribeLane<Signature>::make(name);
  op.kind = Kind::Mask;
  op.mask = MaskKernel<Signature, F>::run;
  op.mask_in = use & kIn;
  op.mask_out = use & kOut;
  op.shadow = shadow;
  return op;
}

}  // namespace arith
