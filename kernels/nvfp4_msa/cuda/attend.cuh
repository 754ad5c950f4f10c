// A warp's pages: for each a tile of 32 tokens.
#pragma once
#include "attend_narrow.cuh"
#include "attend_wide.cuh"

// A tile of which the first `visible` tokens, at least one, count. `first`: no other was attended to before. Where V comes apart it has come once
// `values_bar` is in the phase after `parity`.
template <class V, class FORM, class Q>
__device__ __forceinline__ void attend_tile(Softmax<FORM>& x, const Q& q, uint32_t stage, const Places& at, int visible, bool first, uint32_t values_bar,
                                            int parity, int lane) {
  const auto widen = [&] {
    widen_v_scales<V::LINEAR>(at.widened, stage + at.v_scales, visible, lane);
    __syncwarp();
  };
  if (!V::APART) widen();
  typename Softmax<FORM>::Scores s = {};
  typename Softmax<FORM>::Weights p;
  FORM::scores(s, q, Keys(stage, at));
  if (V::APART) {
    mbar_spin(values_bar, parity);
    widen();
  }
  if (visible < TILE) {
#pragma unroll
    for (int j = 0; j < FORM::TILES; j++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (FORM::token(j, i, lane) >= visible) s[j][i] = -INFINITY;
  }
  tile_softmax(p, x, s, first);
#pragma unroll
  for (int step = 0; step < 2; step++) FORM::output(x, p[step], Values(stage, at, step));
}

// The warp's share of the listed pages: every TEAMS-th from its team's first. `visible`: tokens of its tile that it sees in the row's own block.
template <class V, class FORM, class Q>
__device__ __forceinline__ void attend(Softmax<FORM>& x, const Q& q, const Ring<V::STAGES, V::APART>& ring, const int* pages, int count, int visible,
                                       uint32_t widened, int lane) {
  const Places at = Places::of<V::LINEAR>(lane, widened);
  int stage = 0, parity = 0;
#pragma unroll 1
  for (int i = 0; i < count; i += V::TEAMS) {
    const int seen = pages[i] < 0 ? visible : TILE;
    mbar_spin(ring.bar(stage, 0), parity);
    const int next = i + ring.AHEAD * V::TEAMS;
    if (next < count && elect_one()) ring.load(pages[next], ring.before(stage));
    const uint32_t values_bar = ring.bar(stage, ring.PARTS - 1);
    if (seen > 0) attend_tile<V>(x, q, ring.stage(stage), at, seen, i == 0, values_bar, parity, lane);
    else if (V::APART) mbar_spin(values_bar, parity);
    __syncwarp();                                // the next copy is into this stage
    if (++stage == V::STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
}
