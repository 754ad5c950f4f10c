// E2M1 codes and e4m3 scales to f16.
#pragma once
#include "ring.cuh"

// Eight codes n0 .. n7 of a word -> f[i] = the f16 pair (n_i, n_(i+4)), times 2^-14: the three bits of a magnitude become an f16's lowest
// exponent bits and first mantissa bit. The smallest product with a scale, 2^-10 * 2^-14, still is an f16.
constexpr float UNPACKED_UNIT = 16384.f;
__device__ __forceinline__ void unpack_codes(uint32_t (&f)[4], uint32_t x) {
  constexpr uint32_t SIGNS = 0x80808080u, F16 = 0x8E008E00u;
  const uint32_t even = select_bits(x << 4, x << 1, SIGNS), odd = select_bits(x, x >> 3, SIGNS);   // bytes s???eem? of n0 n2 n4 n6, n1 n3 n5 n7
  f[0] = (even << 8) & F16;
  f[1] = (odd << 8) & F16;
  f[2] = even & F16;
  f[3] = odd & F16;
}

// The same, times an f16 pair of scales.
__device__ __forceinline__ void unpack_scaled(uint32_t (&f)[4], uint32_t x, uint32_t scale) {
  unpack_codes(f, x);
#pragma unroll
  for (int i = 0; i < 4; i++) f[i] = mul_f16x2(f[i], scale);
}

// A warp's V scales of one tile in f16: [16 token pairs][2 halves of a 16-byte chunk][4 chunks] f16 pairs, in an order in which neither
// the stores nor the loads below meet in a bank.
constexpr int WIDENED_BYTES = TILE * 8 * 2;

// What a lane (g, c) = (lane / 4, lane % 4) reads and writes, as offsets from a stage; of the widened scales, as addresses.
struct Places {
  uint32_t k_codes;            // chunk c of token g
  uint32_t k_scales;           // of these 32 dims; tokens + 8: + 64
  uint32_t v_codes;            // the row of ldmatrix: token lane % 8, chunk lane / 8
  uint32_t v_scales;           // of tokens 4 g to + 3, groups 2 c and + 1
  uint32_t widened;            // of tokens 4 g and + 1, group 2 c; the next two tokens: ^ 32, + 256; the next group: + 128
  uint32_t operand;            // of tokens 2 c and + 1, the group of this lane's dims in each chunk; tokens + 8: ^ 32; tokens + 16: + 64

  template <bool LINEAR>
  static __device__ __forceinline__ Places of(int lane, uint32_t widened) {
    const int g = lane >> 2, c = lane & 3;
    Places p;
    p.k_codes = chunk_offset(g, c);
    p.k_scales = STAGE_K_SCALES + lane * 2;
    p.v_codes = STAGE_V + chunk_offset(lane & 7, lane >> 3);
    p.v_scales = STAGE_V_SCALES + (LINEAR ? g * 32 + c * 2 : lane * 8);
    p.widened = widened + g * 16 + c * 4;
    p.operand = widened + (c & 1) * 256 + (g >> 2) * 128 + (c >> 1) * 16 + (c & 1) * 32;
    keep(p.k_codes);
    keep(p.v_codes);
    keep(p.widened);
    keep(p.operand);
    return p;
  }
};

// The scales of four tokens for two groups: byte t of word g.
template <bool LINEAR>
__device__ __forceinline__ uint2 load_v_scales(uint32_t src) {
  if constexpr (!LINEAR) {
    uint32_t x[2];
    ld_shared(x, src);
    return make_uint2(x[0], x[1]);
  }
  const uint32_t t01 = __byte_perm(ld_shared_u16(src), ld_shared_u16(src + 8), 0x5140);
  const uint32_t t23 = __byte_perm(ld_shared_u16(src + 16), ld_shared_u16(src + 24), 0x5140);
  return make_uint2(__byte_perm(t01, t23, 0x5410), __byte_perm(t01, t23, 0x7632));
}

// All lanes of a warp; a __syncwarp before the loads. Scales of tokens from `visible` on become zero: a page may hold NaN there.
template <bool LINEAR>
__device__ __forceinline__ void widen_v_scales(uint32_t dst, uint32_t src, int visible, int lane) {
  uint2 x = load_v_scales<LINEAR>(src);
  if (visible < TILE) {
    const int seen = min(max(visible - (lane & ~3), 0), 4);
    const uint32_t mask = seen == 4 ? ~0u : (1u << seen * 8) - 1;
    x = make_uint2(x.x & mask, x.y & mask);
  }
  uint32_t first, second;
  e4m3x4_to_f16(first, second, x.x);
  st_shared(dst, first);
  st_shared((dst ^ 32) + 256, second);
  e4m3x4_to_f16(first, second, x.y);
  st_shared(dst + 128, first);
  st_shared((dst ^ 32) + 256 + 128, second);
}

// A place of a token's codes, for the token 8 n on.
__device__ __forceinline__ uint32_t tokens_on(uint32_t place, int n) { return (n & 1 ? place ^ 64 : place) + n * 8 * UNIT; }

// What a lane reads of a tile's K: tokens 8 j + g, dims 32 c to 32 c + 31.
struct Keys {
  uint32_t codes[4][4], scales[4];               // scales: f16 pairs, of the first 16 dims and of the others
  __device__ __forceinline__ Keys(uint32_t stage, const Places& at) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      ld_shared(codes[j], stage + tokens_on(at.k_codes, j));
      scales[j] = e4m3x2_to_f16x2((uint16_t)ld_shared_u16(stage + at.k_scales + j * 8 * 8));
    }
  }
  // Dims 32 c + 8 w + i and + 4 to f[i].
  __device__ __forceinline__ void unpack(uint32_t (&f)[4], int j, int w) const {
    unpack_scaled(f, codes[j][w], w < 2 ? low_twice(scales[j]) : high_twice(scales[j]));
  }
};

// What a lane reads of V of 16 tokens. A unit of the transposed ldmatrix is four dims of one token, so a register holds these of two tokens.
struct Values {
  uint32_t codes[2][4], scales[2][4];            // [h]: tokens 8 h + 2 c and + 1
  __device__ __forceinline__ Values(uint32_t stage, const Places& at, int step) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      ldmatrix4_trans(codes[h], stage + tokens_on(at.v_codes, 2 * step + h));
      ld_shared(scales[h], (h ? at.operand ^ 32 : at.operand) + step * 64);
    }
  }
  // Dim 32 u + 4 g + i of the tokens to f[h][i].
  __device__ __forceinline__ void unpack(uint32_t (&f)[2][4], int u) const {
#pragma unroll
    for (int h = 0; h < 2; h++) unpack_scaled(f[h], codes[h][u], scales[h][u]);
  }
};
