// Query operand of the score product, in the swizzled layout that wgmma reads: two e4m3 parts per bf16 value, or bf16 as it is.
#pragma once
#include "decode.cuh"

constexpr int Q_BOX = 32 * 128;                          // 128 dims of 32 rows: 16 high parts, then 16 low parts
constexpr int Q_BYTES = 4 * Q_BOX + 32 * 64;
constexpr int Q_BOX16 = ROWS * 128;                      // bf16: 64 dims of 16 rows
static_assert(Q_BYTES == 9 * Q_BOX16);

// Offset of (row, dim) in the query image: four 128-byte-swizzled boxes, then the 64-byte-swizzled box of the rope dims.
__device__ __forceinline__ int q_offset(int row, int dim) {
  if (dim < D_V) {
    const int off = row * 128 + (dim & 127);
    return (dim >> 7) * Q_BOX + (off ^ (((off >> 7) & 7) << 4));
  }
  const int off = row * 64 + (dim - D_V);
  return 4 * Q_BOX + (off ^ (((off >> 7) & 3) << 4));
}

// Where wgmma finds a dim (of four from a multiple of 4) if the other operand comes from registers that hold mxfp4 chunks as they lie in
// memory: lane q of four has dims 32 q .. 32 q + 31 of every 128, or 8 q .. 8 q + 7 of the 32 of a rope chunk, and gives eight to every product
// over 32, as bytes 4 q + {0, 1, 2, 3} and 16 + 4 q + {0, 1, 2, 3}.
__device__ __forceinline__ int chunked_dim(int dim) {
  const int lane = dim < D_V ? (dim >> 5) & 3 : (dim >> 3) & 3, step = dim < D_V ? (dim >> 3) & 3 : (dim >> 5) & 1;
  return (dim & ~127) + step * 32 + ((dim >> 2) & 1) * 16 + lane * 4;
}

__device__ __forceinline__ int q_offset16(int row, int dim) {
  const int off = row * 128 + (dim & 63) * 2;
  return (dim >> 6) * Q_BOX16 + (off ^ (((off >> 7) & 7) << 4));
}

// Two f16 as e4m3 parts: x = hi + lo / 16, but for what eight significant bits do not hold.
__device__ __forceinline__ void split_e4m3(uint16_t& hi, uint16_t& lo, uint32_t x) {
  hi = f16x2_to_e4m3x2(x);
  lo = f16x2_to_e4m3x2(mul_f16x2(sub_f16x2(x, e4m3x2_to_f16x2(hi)), 0x4c004c00u));   // 16
}

// Two bf16 times a power of two, as f16 (exact but below 2^-14), in two parts.
__device__ __forceinline__ void split_pair(uint16_t& hi, uint16_t& lo, uint32_t bf16x2, float inverse) {
  split_e4m3(hi, lo, pack_f16(__uint_as_float(bf16x2 << 16) * inverse, __uint_as_float(bf16x2 & 0xffff0000u) * inverse));
}

// The rows of one warp: WARPS warps share 16 rows. Loading is apart from storing so that other work hides its latency.
// Two adjacent rows are 9 x 256 contiguous bytes; a lane takes 8 bytes (4 dims) of each.
template <int WARPS>
struct QueryRows {
  static constexpr int PAIRS = ROWS / WARPS / 2, CHUNKS = 2 * D_QK / 128;
  uint2 raw[PAIRS][CHUNKS];

  // Which of the pair's two rows chunk i of a lane belongs to.
  static __device__ __forceinline__ bool in_second(int i, int lane) { return i > CHUNKS / 2 || (i == CHUNKS / 2 && lane >= 16); }

  __device__ __forceinline__ void load(const Args& a, const Work& w, int warp, int lane) {
#pragma unroll
    for (int p = 0; p < PAIRS; p++)
#pragma unroll
      for (int i = 0; i < CHUNKS; i++) {
        const int second = in_second(i, lane), row = min((warp * PAIRS + p) * 2 + second, w.rows - 1);   // spare rows repeat the last
        const __nv_bfloat16* src = a.q + ((size_t)w.first_row + row) * D_QK + i * 128 + lane * 4 - second * D_QK;
        raw[p][i] = __ldg(reinterpret_cast<const uint2*>(src));
      }
  }

  __device__ __forceinline__ void store16(uint8_t* image, int warp, int lane) const {
#pragma unroll
    for (int p = 0; p < PAIRS; p++)
#pragma unroll
      for (int i = 0; i < CHUNKS; i++) {
        const int second = in_second(i, lane), row = (warp * PAIRS + p) * 2 + second, dim = i * 128 + lane * 4 - second * D_QK;
        *reinterpret_cast<uint2*>(image + q_offset16(row, dim)) = raw[p][i];
      }
  }

  // q = (hi + lo / 16) * scale, exact for bf16 q: e4m3 keeps 4 significant bits, the rest of a bf16 significand fits in 4 more.
  template <bool CHUNKED>
  __device__ __forceinline__ void store(uint8_t* image, float* row_scale, int warp, int lane) const {
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
      uint32_t top[2] = {0, 0};                          // largest |bf16| of each row, two lanes of 16 bits at once
#pragma unroll
      for (int i = 0; i < CHUNKS; i++) {
        const uint32_t t = __vmaxu2(raw[p][i].x & 0x7fff7fffu, raw[p][i].y & 0x7fff7fffu);
        if (in_second(i, lane))
          top[1] = __vmaxu2(top[1], t);
        else
          top[0] = __vmaxu2(top[0], t);
      }
      float inverse[2];
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const uint32_t amax = __reduce_max_sync(~0u, max(top[r] & 0xffffu, top[r] >> 16)) << 16;
        const int e = max((int)(amax >> 23), 8);         // amax * inverse lies in [128, 256)
        inverse[r] = __uint_as_float((uint32_t)(261 - e) << 23);
        if (lane == 0) row_scale[(warp * PAIRS + p) * 2 + r] = __uint_as_float((uint32_t)max(e - 7, 1) << 23);
      }
#pragma unroll
      for (int i = 0; i < CHUNKS; i++) {
        const bool second = in_second(i, lane);
        const int row = (warp * PAIRS + p) * 2 + second, in_row = i * 128 + lane * 4 - second * D_QK;
        const int dim = CHUNKED ? chunked_dim(in_row) : in_row;
        uint16_t hi[2], lo[2];
        split_pair(hi[0], lo[0], raw[p][i].x, second ? inverse[1] : inverse[0]);
        split_pair(hi[1], lo[1], raw[p][i].y, second ? inverse[1] : inverse[0]);
        *reinterpret_cast<uint32_t*>(image + q_offset(row, dim)) = hi[0] | (uint32_t)hi[1] << 16;
        *reinterpret_cast<uint32_t*>(image + q_offset(row + ROWS, dim)) = lo[0] | (uint32_t)lo[1] << 16;
      }
    }
  }
};
