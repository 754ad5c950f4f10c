// One 64-token tile: scores, online softmax, output.
#pragma once
#include "query.cuh"

constexpr int BOX = TILE * 128;                          // 128 bytes of 64 tokens, 128-byte swizzle
// 8-bit: four boxes, then the rope dims with a 64-byte swizzle. bf16: nine boxes.
template <Kv KV>
constexpr int TILE_BYTES = KV == Kv::bf16 ? 9 * BOX : 4 * BOX + TILE * 64;
// Accumulators of the scores: of 16 or 32 columns.
template <Kv KV>
constexpr int SCORES = KV == Kv::bf16 ? 8 : 16;
// P: 16 rows of 64 16-bit tokens, padded; for e5m2 V two e4m3 parts, see store_p.
constexpr int P_PITCH = (TILE + 8) * 2;
template <Kv KV>
constexpr int P_BYTES = KV == Kv::e5m2 ? 2 * ROWS * TILE : ROWS * P_PITCH;
// The output is rescaled only when a running maximum grows by more than 2^8: P then still fits f16.
constexpr float LAZY = 8.f;

// One warpgroup's softmax. Lane: rows r = 2 (lane % 4) + {0, 1, 8, 9}.
struct Softmax {
  float scale[4];                                        // score -> log2 units
  float m[4], l[4];                                      // running maximum (log2 units) and this lane's share of the sum
  // `row_scale` null: queries are as they were.
  __device__ __forceinline__ void init(const float* row_scale, float sm_scale, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      scale[i] = (row_scale ? row_scale[(i >> 1) * 8 + (lane & 3) * 2 + (i & 1)] : 1.f) * sm_scale * LOG2E;
      m[i] = -INFINITY;
      l[i] = 0.f;
    }
  }
};

// Output of one warp: 16 tiles of m16n8, rows lane / 4 and lane / 4 + 8, see tile_output.
struct Output {
  float acc[16][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int c = 0; c < 16; c++)
#pragma unroll
      for (int i = 0; i < 4; i++) acc[c][i] = 0.f;
  }
  // Factors of rows lane / 4 and lane / 4 + 8.
  __device__ __forceinline__ void scale(float lo, float hi) {
#pragma unroll
    for (int c = 0; c < 16; c++) {
      acc[c][0] *= lo;
      acc[c][1] *= lo;
      acc[c][2] *= hi;
      acc[c][3] *= hi;
    }
  }
};

// K-major operand descriptor. Low word: address / 16 (and a leading offset that swizzled layouts ignore). High word: bytes from
// eight rows to the next / 16 and the swizzle (1 = 128 B, 2 = 64 B).
__device__ __forceinline__ uint32_t operand_low(uint32_t addr) { return ((addr & 0x3FFFF) >> 4) | (1u << 16); }
constexpr uint32_t WIDE_ROWS = (1024u >> 4) | (1u << 30), NARROW_ROWS = (512u >> 4) | (2u << 30);   // of 128 and of 64 bytes

// Starts d = K[64 tokens, 576] Q^T; d is complete after wgmma_wait. Element (token, column): d[4 j + 2 (token >= 8) + odd], column
// 8 j + 2 (lane % 4) + odd; a column is a row of Q, or of [Qhi; Qlo].
template <Kv KV>
__device__ __forceinline__ void start_scores(float (&d)[SCORES<KV>], uint32_t tile, uint32_t q) {
  constexpr int STEPS = KV == Kv::bf16 ? 36 : 18, ROPE = KV == Kv::bf16 ? STEPS : 16, QUERY_BOX = KV == Kv::bf16 ? Q_BOX16 : Q_BOX;
  const uint32_t tile_low = operand_low(tile), q_low = operand_low(q);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    const uint32_t high = k < ROPE ? WIDE_ROWS : NARROW_ROWS;
    const uint64_t a = pack_u64(tile_low + ((k >> 2) * BOX + (k & 3) * 32) / 16, high);
    const uint64_t b = pack_u64(q_low + ((k >> 2) * QUERY_BOX + (k & 3) * 32) / 16, high);
    if constexpr (KV == Kv::bf16)
      wgmma_bf16(d, a, b, k);
    else
      wgmma_e4m3(d, a, b, k);
  }
  wgmma_commit();
}

// The bases 2^exponent of this lane's two tokens (token, token + 8). Weighing V by them is left to the softmax: with scores s + exponent its
// running maximum is that of the products, P V needs no further factor, and only the sum of P takes 2^-exponent.
struct Bases {
  int exponent[2] = {0, 0};
  __device__ __forceinline__ float factor(int h) const { return __uint_as_float((uint32_t)(127 + exponent[h]) << 23); }
  __device__ __forceinline__ float inverse(int h) const { return __uint_as_float((uint32_t)(127 - exponent[h]) << 23); }
};

// Scores in log2 units: s[i] is (token + 8 (i / 4), row i % 4 of the lane's four); tokens at or past `len` get -inf.
template <Kv KV>
__device__ __forceinline__ void tile_logits(float (&s)[8], const float (&d)[SCORES<KV>], const Softmax& x, const Bases& bases, int token, int len) {
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int k = ((i & 3) >> 1) * 4 + (i >> 2) * 2 + (i & 1), h = i >> 2;
    float score = d[k];
    if constexpr (KV != Kv::bf16) score = fmaf(d[k + 8], 0.0625f, score);
    score *= x.scale[i & 3];
    if (KV == Kv::e5m2) score = fmaf(score, bases.factor(h), (float)bases.exponent[h]);
    s[i] = token + h * 8 < len ? score : -INFINITY;
  }
}

// Where this lane's stmatrix row of P lies: P is [row][token] in f16, or bf16 as V is, written transposed.
__device__ __forceinline__ uint32_t p_store_addr(uint32_t p, int warp, int lane) {
  return p + ((lane >> 3) & 1) * 8 * P_PITCH + (lane & 7) * P_PITCH + warp * 32 + (lane >> 4) * 16;
}

// For e5m2 V, which wgmma reads: two e4m3 parts, P = hi + lo / 16, as 32 rows of 64 bytes with a 64-byte swizzle. Byte 16 w + 2 r + h of a row is
// the token of row r + 8 h of warp w's 16 in the score product.
__device__ __forceinline__ uint32_t narrow_store_addr(uint32_t rows, int warp, int lane) { return rows + lane * TILE + ((warp ^ (lane >> 1 & 3)) << 4); }

template <Kv KV>
__device__ __forceinline__ void store_p(uint32_t addr, const float (&p)[8]) {
  uint32_t x[4];
  if (KV == Kv::e5m2) {
    uint16_t hi[4], lo[4];
#pragma unroll
    for (int i = 0; i < 4; i++) split_e4m3(hi[i], lo[i], pack_f16(p[i], p[i + 4]));
#pragma unroll
    for (int i = 0; i < 2; i++) {
      x[i] = hi[2 * i] | (uint32_t)hi[2 * i + 1] << 16;
      x[i + 2] = lo[2 * i] | (uint32_t)lo[2 * i + 1] << 16;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = KV == Kv::bf16 ? pack_bf16(p[2 * i], p[2 * i + 1]) : pack_f16(p[2 * i], p[2 * i + 1]);
  }
  stmatrix4_trans(addr, x[0], x[1], x[2], x[3]);
}

// New maxima over the warpgroup's 64 tokens; l is rescaled to them by `alpha`. `top` is [4 warps][16] floats of the warpgroup.
__device__ __forceinline__ void raise_maximum(Softmax& x, const float (&s)[8], float (&alpha)[4], float* top, int bar, int warp, int lane) {
  float t[4];
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
}

// What a lane has of the softmax's four rows, for the output's two: those of lane / 4 and lane / 4 + 8 are with lane (lane / 8).
__device__ __forceinline__ float2 of_output_rows(const float (&x)[4], int lane) {
  const int src = lane >> 3;
  const float x0 = __shfl_sync(~0u, x[0], src), x1 = __shfl_sync(~0u, x[1], src);
  const float x2 = __shfl_sync(~0u, x[2], src), x3 = __shfl_sync(~0u, x[3], src);
  return (lane & 4) ? make_float2(x1, x3) : make_float2(x0, x2);
}
__device__ __forceinline__ void scale_output(Output& o, const float (&alpha)[4], int lane) {
  const float2 factor = of_output_rows(alpha, lane);
  o.scale(factor.x, factor.y);
}

// P of the tile goes to shared memory in f16; maximum and sum are updated. If a maximum grew, whoever holds the output hears by what:
// `raised(alpha)`. One barrier of the warpgroup if none did.
template <Kv KV, class Raised>
__device__ __forceinline__ void tile_softmax(Softmax& x, const float (&s)[8], const Bases& bases, uint32_t p_addr, float* top, int bar, int warp,
                                             int lane, Raised&& raised) {
  float p[8];
  bool grew = false;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    grew |= s[i] > x.m[i & 3] + LAZY;
    p[i] = exp2_approx(s[i] - x.m[i & 3]);
  }
  store_p<KV>(p_addr, p);
  if (bar_or(bar, 128, grew)) {
    float alpha[4];
    raise_maximum(x, s, alpha, top, bar, warp, lane);
    raised(alpha);
#pragma unroll
    for (int i = 0; i < 8; i++) p[i] = exp2_approx(s[i] - x.m[i & 3]);
    store_p<KV>(p_addr, p);
    bar_sync(bar, 128);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) x.l[i & 3] = KV == Kv::e5m2 ? fmaf(p[i], bases.inverse(i >> 2), x.l[i & 3]) : x.l[i & 3] + p[i];
}

// Rows past the end of the sequence hold whatever follows it (NaN, perhaps), and 0 * NaN is NaN. Each warp clears what it reads.
template <Kv KV>
__device__ __forceinline__ void clear_rows(uint32_t tile, int first, int warp, int lane) {
  constexpr int BOXES = KV == Kv::bf16 ? 2 : 1;
  for (int row = first; row < TILE; row++)
#pragma unroll
    for (int i = 0; i < BOXES; i++) st_shared(tile + (warp * BOXES + i) * BOX + row * 128 + lane * 4, 0u);
  __syncwarp();
}

// acc += P V for this warp's 128 dims, of 8-bit tiles (one box). A transposed ldmatrix unit is two dims of one token; the even and the odd dims of
// a token pair become the B operands of two mma tiles: acc[2 c + odd] holds dims 16 c + 4 (lane % 4) + 2 j + odd for j = 0, 1.
__device__ __forceinline__ void tile_output8(float (&acc)[16][4], uint32_t box, uint32_t p, int lane) {
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
        e4m3x4_to_f16(even0, odd0, __byte_perm(x[2 * j], 0, 0x3120));
        e4m3x4_to_f16(even1, odd1, __byte_perm(x[2 * j + 1], 0, 0x3120));
        mma_f16(acc[2 * (c + j)], weights, even0, even1);
        mma_f16(acc[2 * (c + j) + 1], weights, odd0, odd1);
      }
    }
  }
}

// acc += P V for this warp's 128 dims, of bf16 tiles (two boxes): acc[t] holds dims 8 t + 2 (lane % 4) + j for j = 0, 1.
__device__ __forceinline__ void tile_output16(float (&acc)[16][4], uint32_t box, uint32_t p, int lane) {
  const int row = ((lane >> 3) & 1) * 8 + (lane & 7);
  const uint32_t prow = p + row * P_PITCH + (lane >> 4) * 16, vrow = box + row * 128, chunk = ((lane >> 4) ^ (lane & 7)) << 4;
#pragma unroll
  for (int ks = 0; ks < 4; ks++) {
    uint32_t weights[4];
    ldmatrix4(weights, prow + ks * 32);
#pragma unroll
    for (int c = 0; c < 16; c += 2) {
      uint32_t x[4];
      ldmatrix4_trans(x, vrow + (c >> 3) * BOX + ks * 2048 + (chunk ^ ((c & 7) << 4)));
#pragma unroll
      for (int j = 0; j < 2; j++) mma_bf16(acc[c + j], weights, x[2 * j], x[2 * j + 1]);
    }
  }
}

// acc += P V for warp `warp` of the warpgroup, of a tile as the copy engine left it.
template <Kv KV>
__device__ __forceinline__ void tile_output(float (&acc)[16][4], uint32_t tile, uint32_t p, int warp, int lane) {
  if constexpr (KV == Kv::bf16)
    tile_output16(acc, tile + warp * 2 * BOX, p, lane);
  else
    tile_output8(acc, tile + warp * BOX, p, lane);
}
