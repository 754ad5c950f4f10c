// Scores of a tile, transposed: A = 16 KV rows, B = 16 query rows. Lane: tokens 4 * group + 0..3 of the 16, row `column`.

DEVICE i32x8 joined(i32x4 low, i32x4 high) { return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7); }
DEVICE i32x4 read16(LDS const char* from) { return *(LDS const i32x4*)from; }

constexpr int kFormatFp8 = 0, kFormatFp4 = 4;  // of an operand of the scaled products
constexpr int kUnscaled = 0x7f7f7f7f;          // E8M0 of 1.0, four times

template <int kFormatA>
DEVICE f32x4 scaled_product(i32x8 a, i32x8 b, f32x4 sum, int scale_a = kUnscaled, int scale_b = kUnscaled) {
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, sum, kFormatA, kFormatFp8, 0, scale_a, 0, scale_b);
}

// multiply() adds A * B for one block of 16 tokens to `sum`, for every block of query rows. operand() and scale() are A and its
// block scale for one of the 5 steps over 128 dims.
template <Traits T>
struct Keys;

template <Traits T>
  requires(T.kv == kFp8)
struct Keys<T> {
  static constexpr int kFormat = kFormatFp8;
  u32 place[2];  // of even and odd blocks: only the swizzle tells them apart

  MEMBER Keys(const Lane& at) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) place[parity] = Tile<T>::place(16 * parity + at.column, at.group) - parity * 16 * kQkDim;
  }

  MEMBER void multiply(LDS const char* tile, const ScaleTile<T> LDS*, int block, const Fp8Query* query, f32x4* sum) const {
    LDS const char* row = tile + place[block % 2] + block * 16 * kQkDim;
#pragma unroll
    for (int j = 0; j + 1 < Fp8Query::kPieces; j += 2) {
      const i32x8 a = joined(read16(row + 64 * j), read16(row + 64 * j + 64));
#pragma unroll
      for (int r = 0; r < T.row_blocks; ++r) sum[r] = scaled_product<kFormatFp8>(a, joined(query[r].piece[j], query[r].piece[j + 1]), sum[r]);
    }
    // The last 64 dims, as two products over 32; which 32 does not matter as long as both operands agree.
    const i32x4 rest = read16(row + 64 * 8);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int r = 0; r < T.row_blocks; ++r) {
        const i32x4 b = query[r].piece[8];
        const long k8 = __builtin_bit_cast(long, i32x2{rest[2 * half], rest[2 * half + 1]});
        const long q8 = __builtin_bit_cast(long, i32x2{b[2 * half], b[2 * half + 1]});
        sum[r] = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(k8, q8, sum[r], 0, 0, 0);
      }
  }

  // The upper half of step 4 meets zeros.
  MEMBER i32x8 operand(LDS const char* tile, int block, int step) const {
    LDS const char* from = tile + place[block % 2] + block * 16 * kQkDim + step * 128;
    return joined(read16(from), read16(step < 4 ? from + 64 : from));
  }
  MEMBER static int scale(const ScaleTile<T> LDS*, int, int) { return kUnscaled; }
};

// An fp4 operand has 32 consecutive dims in a lane, beginning at 32 * group, and the scale of just these; the fp8 side has the
// two chunks of Fp8Query.
template <Traits T>
  requires(T.kv == kMxfp4)
struct Keys<T> {
  static constexpr int kFormat = kFormatFp4, kSteps = 5, kRow = Tile<T>::kRowBytes;
  u32 place[2], rest[2], scale_place;

  MEMBER Keys(const Lane& at) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      place[parity] = Tile<T>::place(16 * parity + at.column, at.group) - parity * 16 * kRow;
      // Step 4 has dims 512..575 only: the other groups meet zeros of the query, so any number will do.
      rest[parity] = Tile<T>::place(16 * parity + at.column, 16 + at.group % 2) - parity * 16 * kRow;
    }
    scale_place = (at.column * 4 + at.group) * 8;
  }

  MEMBER void multiply(LDS const char* tile, const ScaleTile<T> LDS* scales, int block, const Fp8Query* query, f32x4* sum) const {
    const i32x2 scale = block_scales(scales, block);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const i32x4 zero = {0, 0, 0, 0};
      const i32x8 k = operand(tile, block, step);
#pragma unroll
      for (int r = 0; r < T.row_blocks; ++r) {
        const i32x8 q = joined(query[r].piece[2 * step], step < 4 ? query[r].piece[2 * step + 1] : zero);
        sum[r] = product(step, k, q, sum[r], scale);
      }
    }
  }

  MEMBER i32x2 block_scales(const ScaleTile<T> LDS* scales, int block) const {
    return *(LDS const i32x2*)((LDS const char*)scales->bytes + scale_place + block * 16 * 32);
  }
  MEMBER i32x8 operand(LDS const char* tile, int block, int step) const {
    const i32x4 k = read16(tile + block * 16 * kRow + (step < 4 ? place[block % 2] + 64 * step : rest[block % 2]));
    return joined(k, k);
  }
  MEMBER int scale(const ScaleTile<T> LDS* scales, int block, int step) const {
    const i32x2 all = block_scales(scales, block);
    return step < 4 ? (u32)all[0] >> 8 * step : all[1];
  }

  // The builtin wants a literal for the byte of the scale register.
  MEMBER static f32x4 product(int step, i32x8 k, i32x8 q, f32x4 sum, i32x2 scale) {
#define STEP(byte, word) __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(k, q, sum, kFormatFp4, kFormatFp8, byte, scale[word], 0, kUnscaled)
    switch (step) {
      case 0: return STEP(0, 0);
      case 1: return STEP(1, 0);
      case 2: return STEP(2, 0);
      case 3: return STEP(3, 0);
      default: return STEP(0, 1);
    }
#undef STEP
  }
};

template <Traits T>
  requires(T.kv == kBf16)
struct Keys<T> {
  u32 place[2];  // of even and odd steps: a step is 4 chunks, the swizzle covers 8

  MEMBER Keys(const Lane& at) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) place[parity] = Tile<T>::place(at.column, 4 * parity + at.group);
  }

  MEMBER void multiply(LDS const char* tile, const ScaleTile<T> LDS*, int block, const Bf16Query* query, f32x4* sum) const {
#pragma unroll
    for (int step = 0; step < Bf16Query::kPieces; ++step) {
      LDS const char* from = tile + place[step % 2] + block * 16 * Tile<T>::kRowBytes + step / 2 * 128;
      const bf16x8 k = __builtin_bit_cast(bf16x8, read16(from));
#pragma unroll
      for (int r = 0; r < T.row_blocks; ++r) sum[r] = __builtin_amdgcn_mfma_f32_16x16x32_bf16(k, query[r].piece[step], sum[r], 0, 0, 0);
    }
  }
};
