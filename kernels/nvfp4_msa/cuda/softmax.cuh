// A warp's online softmax and output, for either form of the products.
//
// A form says how m16n8 tiles lie in it: ROWS heads, TILES tiles of scores, two rows of heads in each lane, of which element i of a tile
// belongs to row_of(i); `row` numbers them; lanes FIRST_PEER, 2 FIRST_PEER ... below END_PEER apart have other tokens of the same rows.
#pragma once
#include "query.cuh"

// P is relative to 2^7 times the largest weight so far, and the output is rescaled only when an element of P reaches 2, which its bit 14
// shows. P down to 2^-7 of the largest weight has all bits of an f16, and what is smaller still 2^-17 of it.
constexpr float HEADROOM = 7.f;
constexpr uint32_t F16_AT_LEAST_2 = 0x40004000u;
constexpr uint32_t F16_ONES = 0x3C003C00u;
constexpr int SHARE_PITCH = HEAD_DIM * 2 + 64;   // bytes of a row of a warp's output in f16: neighbouring rows in other banks

template <class FORM>
struct Softmax {
  using Scores = float[FORM::TILES][4];
  using Weights = uint32_t[2][FORM::TILES];      // f16 pairs, of two steps of 16 tokens
  float scale[2];                                // of this lane's rows: score -> log2 units
  float m[2];                                    // what P is relative to, log2 units
  float l[4];                                    // an m16n8 tile of the sums of P
  float acc[FORM::ROWS][4];                      // m16n8 tiles of the output

  template <class Q>
  __device__ __forceinline__ Softmax(const Q& q, float sm_scale, int lane) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      scale[h] = q.power(FORM::row(lane, h)) * sm_scale * (LOG2E * UNPACKED_UNIT);
      m[h] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      l[i] = 0.f;
#pragma unroll
      for (int t = 0; t < FORM::ROWS; t++) acc[t][i] = 0.f;
    }
  }
  // Of row h, from the first of its elements.
  __device__ __forceinline__ float sum(int h) const { return FORM::row_of(h) == h ? l[h] : l[2 * h]; }
};

// What P of this tile should be relative to in row h.
template <class FORM>
__device__ __forceinline__ float tile_maximum(const Softmax<FORM>& x, const typename Softmax<FORM>::Scores& s, int h) {
  float top = -INFINITY;
#pragma unroll
  for (int j = 0; j < FORM::TILES; j++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (FORM::row_of(i) == h) top = fmaxf(top, s[j][i]);
#pragma unroll
  for (int bits = FORM::FIRST_PEER; bits < FORM::END_PEER; bits *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, bits));
  return fmaf(top, x.scale[h], HEADROOM);
}

// Before the first tile: there is nothing to rescale.
template <class FORM>
__device__ __forceinline__ void first_maximum(Softmax<FORM>& x, const typename Softmax<FORM>::Scores& s) {
#pragma unroll
  for (int h = 0; h < 2; h++) x.m[h] = tile_maximum(x, s, h);
}

// acc and l are rescaled to what P is relative to from now on.
template <class FORM>
__device__ __forceinline__ void raise_maximum(Softmax<FORM>& x, const typename Softmax<FORM>::Scores& s) {
  float alpha[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float top = fmaxf(tile_maximum(x, s, h), x.m[h]);
    alpha[h] = exp2_approx(x.m[h] - top);
    x.m[h] = top;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    x.l[i] *= alpha[FORM::row_of(i)];
#pragma unroll
    for (int t = 0; t < FORM::ROWS; t++) x.acc[t][i] *= alpha[FORM::row_of(i)];
  }
}

template <class FORM>
__device__ __forceinline__ void weights(typename Softmax<FORM>::Weights& p, const Softmax<FORM>& x, const typename Softmax<FORM>::Scores& s) {
#pragma unroll
  for (int k = 0; k < 2 * FORM::TILES; k++) {
    float e[2];
#pragma unroll
    for (int b = 0; b < 2; b++) {
      const int i = 2 * (k & 1) + b, h = FORM::row_of(i);
      e[b] = exp2_approx(fmaf(s[k >> 1][i], x.scale[h], -x.m[h]));
    }
    p[k / FORM::TILES][k % FORM::TILES] = pack_f16(e[0], e[1]);
  }
}

// P; what it is relative to is raised if it has to be. It still is -inf, and P infinite or NaN, where the warp sees nothing of its first page.
template <class FORM>
__device__ __forceinline__ void tile_softmax(typename Softmax<FORM>::Weights& p, Softmax<FORM>& x, const typename Softmax<FORM>::Scores& s,
                                             bool first) {
  if (first) first_maximum(x, s);
  weights(p, x, s);
  uint32_t any = 0;
#pragma unroll
  for (int i = 0; i < FORM::TILES; i++) any |= p[0][i] | p[1][i];
  if (__any_sync(~0u, any & F16_AT_LEAST_2)) {
    raise_maximum(x, s);
    weights(p, x, s);
  }
}
