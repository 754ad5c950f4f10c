// A warp's pages: for each a tile of 32 tokens.
#pragma once
#include "attend_narrow.cuh"
#include "attend_wide.cuh"

// A tile of which the first `visible` tokens, at least one, count. `first`: no other was attended to before.
template <bool LINEAR, class FORM, class Q>
__device__ __forceinline__ void attend_tile(Softmax<FORM>& x, const Q& q, uint32_t stage, const Places& at, int visible, bool first, int lane) {
  widen_v_scales<LINEAR>(at.widened, stage + at.v_scales, visible, lane);
  __syncwarp();
  typename Softmax<FORM>::Scores s = {};
  typename Softmax<FORM>::Weights p;
  FORM::scores(s, q, Keys(stage, at));
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
__device__ __forceinline__ void attend(Softmax<FORM>& x, const Q& q, const Ring<V::STAGES>& ring, const int* pages, int count, int visible,
                                       uint32_t widened, int lane) {
  const Places at = Places::of<V::LINEAR>(lane, widened);
  int stage = 0, parity = 0;
#pragma unroll 1
  for (int i = 0; i < count; i += V::TEAMS) {
    const int seen = pages[i] < 0 ? visible : TILE;
    mbar_spin(ring.bars + stage * 8, parity);
    const int next = i + ring.AHEAD * V::TEAMS;
    if (lane == 0 && next < count) ring.load(pages[next], ring.before(stage));
    if (seen > 0) attend_tile<V::LINEAR>(x, q, ring.stage(stage), at, seen, i == 0, lane);
    __syncwarp();                                // the next copy is into this stage
    if (++stage == V::STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
}
