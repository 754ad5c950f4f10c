// One 64-token tile: scores, online softmax, output. Shared by the KV formats; a tile in shared memory is 8-bit: e4m3 as in an fp8
// cache, or e5m2 unpacked from mxfp4, each token's values divided by a power of two of its own (its base).
#pragma once
#include "query.cuh"

constexpr int BOX = TILE * 128;                          // 128 dims of 64 tokens, 128-byte swizzle
constexpr int TILE_BYTES = 4 * BOX + TILE * 64;          // four boxes, then the rope dims with a 64-byte swizzle
constexpr int P_PITCH = (TILE + 8) * 2, P_BYTES = ROWS * P_PITCH;
// The output is rescaled only when a running maximum grows by more than 2^8: P then still fits f16.
constexpr float LAZY = 8.f;

// State of one warpgroup's softmax. Lane: rows r = 2 (lane % 4) + {0, 1, 8, 9}; acc: 16 tiles of m16n8, see tile_output.
struct Softmax {
  float scale[4];                                        // score -> log2 units
  float m[4], l[4];                                      // running maximum (log2 units) and this lane's share of the sum
  float acc[16][4];
  __device__ __forceinline__ void init(const float* row_scale, float sm_scale, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      scale[i] = row_scale[(i >> 1) * 8 + (lane & 3) * 2 + (i & 1)] * sm_scale * LOG2E;
      m[i] = -INFINITY;
      l[i] = 0.f;
    }
#pragma unroll
    for (int c = 0; c < 16; c++)
#pragma unroll
      for (int i = 0; i < 4; i++) acc[c][i] = 0.f;
  }
};

// K-major operand descriptor. Low word: address / 16 (and a leading offset that swizzled layouts ignore). High word: bytes from
// eight rows to the next / 16 and the swizzle (1 = 128 B, 2 = 64 B).
__device__ __forceinline__ uint32_t operand_low(uint32_t addr) { return ((addr & 0x3FFFF) >> 4) | (1u << 16); }

// Starts d = K[64 tokens, 576] [Qhi; Qlo]^T; d is complete after wgmma_wait. Element (token, column): d[4 j + 2 (token >= 8) + odd], column 8 j + 2 (lane % 4) + odd.
template <bool E5M2>
__device__ __forceinline__ void start_scores(float (&d)[16], uint32_t tile, uint32_t q) {
  const uint32_t tile_low = operand_low(tile), q_low = operand_low(q);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 18; k++) {
    const uint32_t high = k < 16 ? (1024u >> 4) | (1u << 30) : (512u >> 4) | (2u << 30);
    const uint64_t a = pack_u64(tile_low + ((k >> 2) * BOX + (k & 3) * 32) / 16, high);
    const uint64_t b = pack_u64(q_low + ((k >> 2) * Q_BOX + (k & 3) * 32) / 16, high);
    if (E5M2)
      wgmma_e5m2(d, a, b, k);
    else
      wgmma_e4m3(d, a, b, k);
  }
  wgmma_commit();
}

// The bases 2^exponent of this lane's two tokens (token, token + 8). Weighing V by them is left to the softmax: with scores s + exponent its
// running maximum is that of the products, P V needs no further factor, and only the sum of P takes 2^-exponent.
template <bool E5M2>
struct Bases {
  int exponent[2] = {0, 0};
  __device__ __forceinline__ float factor(int h) const { return __uint_as_float((uint32_t)(127 + exponent[h]) << 23); }
  __device__ __forceinline__ float inverse(int h) const { return __uint_as_float((uint32_t)(127 - exponent[h]) << 23); }
};

// Scores in log2 units: s[i] is (token + 8 (i / 4), row i % 4 of the lane's four); tokens at or past `len` get -inf.
template <bool E5M2>
__device__ __forceinline__ void tile_logits(float (&s)[8], const float (&d)[16], const Softmax& x, const Bases<E5M2>& bases, int token, int len) {
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int k = ((i & 3) >> 1) * 4 + (i >> 2) * 2 + (i & 1), h = i >> 2;
    const float score = fmaf(d[k + 8], 0.0625f, d[k]) * x.scale[i & 3];
    s[i] = token + h * 8 < len ? E5M2 ? fmaf(score, bases.factor(h), (float)bases.exponent[h]) : score : -INFINITY;
  }
}

// Where this lane's stmatrix row of P lies: P is [row][token] in f16, written transposed.
__device__ __forceinline__ uint32_t p_store_addr(uint32_t p, int warp, int lane) {
  return p + ((lane >> 3) & 1) * 8 * P_PITCH + (lane & 7) * P_PITCH + warp * 32 + (lane >> 4) * 16;
}

__device__ __forceinline__ void store_p(uint32_t addr, const float (&p)[8]) {
  stmatrix4_trans(addr, pack_f16(p[0], p[1]), pack_f16(p[2], p[3]), pack_f16(p[4], p[5]), pack_f16(p[6], p[7]));
}

// New maxima over the warpgroup's 64 tokens; acc and l are rescaled to them. `top` is [4 warps][16] floats of the warpgroup.
__device__ __forceinline__ void raise_maximum(Softmax& x, const float (&s)[8], float* top, int bar, int warp, int lane) {
  float t[4], alpha[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    t[i] = fmaxf(s[i], s[i + 4]);
#pragma unroll
    for (int o = 4; o < 32; o <<= 1) t[i] = fmaxf(t[i], __shfl_xor_sync(~0u, t[i], o));
  }
  if (lane < 4) {
#pragma unroll
    for (int i = 0; i < 4; i++) top[warp * 16 + (i >> 1) * 8 + lane * 2 + (i & 1)] = t[i];
  }
  bar_sync(bar, 128);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int r = (i >> 1) * 8 + (lane & 3) * 2 + (i & 1);
    const float grown = fmaxf(fmaxf(fmaxf(top[r], top[16 + r]), fmaxf(top[32 + r], top[48 + r])), x.m[i]);
    alpha[i] = exp2_approx(x.m[i] - grown);
    x.l[i] *= alpha[i];
    x.m[i] = grown;
  }
  // acc rows are lane / 4 and lane / 4 + 8; their factors are with lane (lane / 8).
  const int src = lane >> 3;
  const float a0 = __shfl_sync(~0u, alpha[0], src), a1 = __shfl_sync(~0u, alpha[1], src);
  const float a2 = __shfl_sync(~0u, alpha[2], src), a3 = __shfl_sync(~0u, alpha[3], src);
  const float lo = (lane & 4) ? a1 : a0, hi = (lane & 4) ? a3 : a2;
#pragma unroll
  for (int c = 0; c < 16; c++) {
    x.acc[c][0] *= lo;
    x.acc[c][1] *= lo;
    x.acc[c][2] *= hi;
    x.acc[c][3] *= hi;
  }
}

// P of the tile goes to shared memory in f16; maximum, sum and acc are updated. Two barriers of the warpgroup if no maximum grew.
template <bool E5M2>
__device__ __forceinline__ void tile_softmax(Softmax& x, const float (&s)[8], const Bases<E5M2>& bases, uint32_t p_addr, float* top, int bar, int warp,
                                             int lane) {
  float p[8];
  bool grew = false;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    grew |= s[i] > x.m[i & 3] + LAZY;
    p[i] = exp2_approx(s[i] - x.m[i & 3]);
  }
  store_p(p_addr, p);
  if (bar_or(bar, 128, grew)) {
    raise_maximum(x, s, top, bar, warp, lane);
#pragma unroll
    for (int i = 0; i < 8; i++) p[i] = exp2_approx(s[i] - x.m[i & 3]);
    store_p(p_addr, p);
    bar_sync(bar, 128);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) x.l[i & 3] = E5M2 ? fmaf(p[i], bases.inverse(i >> 2), x.l[i & 3]) : x.l[i & 3] + p[i];
}

// Rows past the end of the sequence hold whatever follows it (NaN, perhaps), and 0 * NaN is NaN. Each warp clears what it reads.
__device__ __forceinline__ void clear_rows(uint32_t box, int first, int lane) {
  for (int row = first; row < TILE; row++)
    st_shared(box + row * 128 + lane * 4, 0u);
  __syncwarp();
}

// acc += P V for this warp's 128 dims (one box). A transposed ldmatrix unit is two dims of one token; the even and the odd dims of
// a token pair become the B operands of two mma tiles: acc[2 c + odd] holds dims 16 c + 4 (lane % 4) + 2 j + odd for j = 0, 1.
// e5m2 is the high byte of an f16 and needs no conversion.
template <bool E5M2>
__device__ __forceinline__ void tile_output(float (&acc)[16][4], uint32_t box, uint32_t p, int lane) {
  const int row = ((lane >> 3) & 1) * 8 + (lane & 7);
  const uint32_t prow = p + row * P_PITCH + (lane >> 4) * 16, vrow = box + row * 128, chunk = ((lane >> 4) ^ (lane & 7)) << 4;
#pragma unroll
  for (int ks = 0; ks < 4; ks++) {
    uint32_t weights[4];
    ldmatrix4(weights, prow + ks * 32);
#pragma unroll
    for (int c = 0; c < 8; c += 2) {
      uint32_t x[4];
      ldmatrix4_trans(x, vrow + ks * 2048 + (chunk ^ (c << 4)));
#pragma unroll
      for (int j = 0; j < 2; j++) {
        uint32_t even0, odd0, even1, odd1;
        if (E5M2) {
          even0 = __byte_perm(x[2 * j], 0, 0x2404);
          odd0 = x[2 * j] & 0xff00ff00u;
          even1 = __byte_perm(x[2 * j + 1], 0, 0x2404);
          odd1 = x[2 * j + 1] & 0xff00ff00u;
        } else {
          e4m3x4_to_f16(even0, odd0, __byte_perm(x[2 * j], 0, 0x3120));
          e4m3x4_to_f16(even1, odd1, __byte_perm(x[2 * j + 1], 0, 0x3120));
        }
        mma_f16(acc[2 * (c + j)], weights, even0, even1);
        mma_f16(acc[2 * (c + j) + 1], weights, odd0, odd1);
      }
    }
  }
}
