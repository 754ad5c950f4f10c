// The multiplying warpgroups: scores, online softmax, output.
//
// Thread (warp, lane) of either owns rows 16 warp + lane / 4 and 8 more, in the layout of wgmma's accumulators. The first warpgroup computes
// S = Q K^T of a tile and the softmax; its P, already in the layout of an A operand, goes to the same thread of the second one through
// shared memory. Each then adds P V for its 256 dims. The next tile's scores are started before this output is awaited.
#pragma once
#include "query.cuh"

// The output is rescaled only when a running maximum grows by more than 2^8: P then still fits f16.
constexpr float LAZY = 8.f;

// Operand descriptors of a 128-byte swizzle. Low word: address / 16, and for transposed operands bytes / 16 from 64 columns to the next.
// High word: bytes / 16 from eight rows to the next, and the swizzle.
constexpr uint32_t DESCRIPTOR_HIGH = (1024u >> 4) | (1u << 30);
__device__ __forceinline__ uint64_t k_major(uint32_t addr) { return pack_u64((addr >> 4) | (1u << 16), DESCRIPTOR_HIGH); }
__device__ __forceinline__ uint64_t transposed(uint32_t addr) { return pack_u64((addr >> 4) | ((uint32_t)(BOX >> 4) << 16), DESCRIPTOR_HIGH); }

// Starts s = Q K^T: element (row, token): s[4 j + 2 (row >= 8) + odd], token 8 j + 2 (lane % 4) + odd.
__device__ __forceinline__ void start_scores(float (&s)[32], uint32_t q, uint32_t tile) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < D_QK / 16; k++) {
    const uint32_t at = (k >> 2) * BOX + (k & 3) * 32;
    if (k < NOPE / 16)
      wgmma_f16(s, k_major(q + at), k_major(tile + at), k);
    else
      wgmma_bf16(s, k_major(q + at), k_major(tile + at), k);
  }
  wgmma_commit();
}

// Starts acc += P V for 256 dims: `values` is the first of their four boxes.
__device__ __forceinline__ void start_output(float (&acc)[128], const uint32_t (&p)[4][4], uint32_t values) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < TILE / 16; k++) wgmma_f16(acc, p[k], transposed(values + k * 16 * 128));
  wgmma_commit();
}

__device__ __forceinline__ void rescale(float (&acc)[128], float2 factor) {
#pragma unroll
  for (int i = 0; i < 128; i++) acc[i] *= i & 2 ? factor.y : factor.x;
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Of the two rows of a thread: score -> base-2 units, running maximum, this lane's share of the sum.
struct Softmax {
  float scale[2], m[2], l[2];

  __device__ __forceinline__ void init(uint32_t smem0, int warp, int lane) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      scale[r] = ld_shared_f32(smem0 + ROW_SCALE_AT + (warp * 16 + r * 8 + (lane >> 2)) * 4);
      m[r] = -INFINITY;
      l[r] = 0.f;
    }
  }

  // Scores in base-2 units; those of tokens that are not valid, -inf. valid[w]: tokens 16 w to 16 w + 15.
  __device__ __forceinline__ void scale_and_mask(float (&s)[32], const uint32_t (&valid)[4], int lane) const {
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] *= scale[i >> 1 & 1];
    if ((valid[0] & valid[1] & valid[2] & valid[3]) == 0xffffu) return;
#pragma unroll
    for (int i = 0; i < 32; i++)
      if (!(valid[i >> 3] >> ((i >> 2 & 1) * 8 + (lane & 3) * 2 + (i & 1)) & 1)) s[i] = -INFINITY;
  }

  // Factors for what has been summed so far; 1 unless a maximum of this warp grew by more than LAZY. While a row has seen no valid
  // token its maximum is -inf.
  __device__ __forceinline__ float2 raise_maximum(const float (&s)[32]) {
    float top[2] = {-INFINITY, -INFINITY}, factor[2] = {1.f, 1.f};
#pragma unroll
    for (int i = 0; i < 32; i++) top[i >> 1 & 1] = fmaxf(top[i >> 1 & 1], s[i]);
#pragma unroll
    for (int r = 0; r < 2; r++) top[r] = quad_max(top[r]);
    if (__any_sync(~0u, top[0] > m[0] + LAZY || top[1] > m[1] + LAZY)) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float grown = fmaxf(m[r], top[r]);
        factor[r] = grown == -INFINITY ? 1.f : exp2_approx(m[r] - grown);
        m[r] = grown;
        l[r] *= factor[r];
      }
    }
    return make_float2(factor[0], factor[1]);
  }

  // p = 2^(s - m) as A operands.
  __device__ __forceinline__ void weigh(uint32_t (&p)[4][4], const float (&s)[32]) {
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; r++) base[r] = m[r] == -INFINITY ? 0.f : m[r];
#pragma unroll
    for (int i = 0; i < 16; i++) {
      const float lo = exp2_approx(s[2 * i] - base[i & 1]), hi = exp2_approx(s[2 * i + 1] - base[i & 1]);
      l[i & 1] += lo + hi;
      p[i >> 2][i & 3] = pack_f16(lo, hi);
    }
  }
};

// From a thread of the first warpgroup to the same one of the second: P of a tile and the factors that the output takes before it.
struct Handover {
  uint32_t address;
  int barrier;

  __device__ __forceinline__ Handover(uint32_t smem0, int warp, int lane) : address(smem0 + P_AT + (warp * 32 + lane) * 16), barrier(warp) {}
  __device__ __forceinline__ void await_free() const { bar_sync(FREE_BARRIER + barrier, 64); }
  __device__ __forceinline__ void release() const { bar_arrive(FREE_BARRIER + barrier, 64); }
  __device__ __forceinline__ void put(const uint32_t (&x)[4][4]) const {
#pragma unroll
    for (int k = 0; k < 4; k++) st_shared(address + k * P_STEP, x[k]);
  }
  __device__ __forceinline__ void put(float2 factor) const { st_shared_pair(address + 4 * P_STEP, {__float_as_uint(factor.x), __float_as_uint(factor.y)}); }
  __device__ __forceinline__ void publish() const { bar_arrive(READY_BARRIER + barrier, 64); }
  __device__ __forceinline__ void await() const { bar_sync(READY_BARRIER + barrier, 64); }
  __device__ __forceinline__ void get(uint32_t (&x)[4][4]) const {
#pragma unroll
    for (int k = 0; k < 4; k++) ld_shared(x[k], address + k * P_STEP);
  }
  __device__ __forceinline__ float2 get() const {
    uint32_t x[2];
    ld_shared_pair(x, address + 4 * P_STEP);
    return make_float2(__uint_as_float(x[0]), __uint_as_float(x[1]));
  }
};

__device__ __forceinline__ uint32_t tile_at(uint32_t smem0, int t) { return smem0 + TILES_AT + (uint32_t)t % STAGES * OPERAND_BYTES; }
// For wgmma to read it.
__device__ __forceinline__ void await_tile(uint32_t smem0, int t) {
  mbar_wait(smem0 + FULL_AT + (uint32_t)t % STAGES * 8, (t / STAGES) & 1);
  fence_async_proxy();
}
__device__ __forceinline__ void release_tile(uint32_t smem0, int t, int lane) {
  __syncwarp();
  if (lane == 0) mbar_arrive(smem0 + EMPTY_AT + (uint32_t)t % STAGES * 8);
}

// A warp's 16 rows of 256 dims, times `factor`, in 16 bits: through 8 KB of shared memory of its own, so that whole rows are written.
// `to(row)` is where 256 dims of a row begin.
template <class Pack, class To>
__device__ __forceinline__ void write_rows(const float (&acc)[128], float2 factor, uint32_t scratch, int rows, int lane, Pack pack, To to) {
#pragma unroll
  for (int j = 0; j < 32; j++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = r * 8 + (lane >> 2);
      const float f = r ? factor.y : factor.x, lo = acc[4 * j + 2 * r], hi = acc[4 * j + 2 * r + 1];
      st_shared(scratch + row * 512 + ((j ^ (row & 7)) << 4) + (lane & 3) * 4, f == 0.f ? 0u : pack(lo * f, hi * f));
    }
  __syncwarp();
#pragma unroll 4
  for (int row = 0; row < rows; row++) {
    uint32_t x[4];
    ld_shared(x, scratch + row * 512 + ((lane ^ (row & 7)) << 4));
    st_global(to(row) + lane * 8, x);
  }
}

__device__ __forceinline__ void write_output(const Args& a, const Work& w, const float (&acc)[128], float2 factor, uint32_t smem0, int group, int warp,
                                             int lane) {
  bar_sync(FINISH_BARRIER, 2 * WARPS * 32);               // no warp reads the queries any more
  const uint32_t scratch = smem0 + Q_AT + (group * WARPS + warp) * 16 * 512;
  const int rows = min(16, w.heads - warp * 16);
  if (a.splits == 1)
    write_rows(acc, factor, scratch, rows, lane, pack_bf16,
               [&](int row) { return reinterpret_cast<uint16_t*>(a.out) + w.row(a, warp * 16 + row) * D_V + group * 256; });
  else
    write_rows(acc, factor, scratch, rows, lane, pack_f16,
               [&](int row) { return a.part + (w.row(a, warp * 16 + row) * a.splits + w.split) * D_V + group * 256; });
}

// lse of this thread's rows, and the factors that normalise them: 0 for a row without a valid token.
__device__ __forceinline__ float2 finish_sums(const Args& a, const Work& w, const Softmax& x, int warp, int lane) {
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int head = warp * 16 + r * 8 + (lane >> 2);
    const float sum = quad_sum(x.l[r]), lse2 = sum == 0.f ? -INFINITY : x.m[r] + log2f(sum);
    factor[r] = sum == 0.f ? 0.f : 1.f / sum;
    if (head >= w.heads) continue;
    const size_t row = w.row(a, head);
    if (a.splits == 1 && sum != 0.f) factor[r] *= sink_factor(a, w.first_head + head, lse2);
    if ((lane & 3) == 0) {
      if (a.splits == 1)
        a.lse[lse_place(a, row)] = natural_lse(lse2, sum);
      else
        a.part_lse[row * a.splits + w.split] = lse2;
    }
  }
  return make_float2(factor[0], factor[1]);
}

// One tile of the first warpgroup, whose scores have been started. The next tile's are started if there is one.
template <bool LAST>
__device__ __forceinline__ void attend_tile(float (&acc)[128], float (&s)[32], Softmax& x, const Handover& to, uint32_t smem0, int t, int lane) {
  const uint32_t tile = tile_at(smem0, t);
  wgmma_wait<0>(s);
  uint32_t valid[4];
  ld_shared(valid, smem0 + VALID_AT + (uint32_t)t % STAGES * 16);
  x.scale_and_mask(s, valid, lane);
  const float2 factor = x.raise_maximum(s);
  uint32_t p[4][4];
  x.weigh(p, s);
  to.await_free();
  to.put(p);
  to.put(factor);
  to.publish();
  if (__any_sync(~0u, factor.x != 1.f || factor.y != 1.f)) rescale(acc, factor);
  start_output(acc, p, tile);
  if (!LAST) {
    await_tile(smem0, t + 1);
    start_scores(s, smem0 + Q_AT, tile_at(smem0, t + 1));
  }
  wgmma_wait<LAST ? 0 : 1>(acc);
  release_tile(smem0, t, lane);
}

__device__ __forceinline__ void multiply_left(const Args& a, const Work& w, uint32_t smem0, int warp, int lane) {
  const Handover to(smem0, warp, lane);
  float acc[128];
#pragma unroll
  for (int i = 0; i < 128; i++) acc[i] = 0.f;
  Softmax x;
  x.init(smem0, warp, lane);
  if (w.tiles > 0) {
    float s[32];
    await_tile(smem0, 0);
    start_scores(s, smem0 + Q_AT, tile_at(smem0, 0));
#pragma unroll 1
    for (int t = 0; t < w.tiles - 1; t++) attend_tile<false>(acc, s, x, to, smem0, t, lane);
    attend_tile<true>(acc, s, x, to, smem0, w.tiles - 1, lane);
  }
  const float2 factor = finish_sums(a, w, x, warp, lane);
  to.await_free();
  to.put(factor);
  to.publish();
  write_output(a, w, acc, factor, smem0, 0, warp, lane);
}

__device__ __forceinline__ void multiply_right(const Args& a, const Work& w, uint32_t smem0, int warp, int lane) {
  const Handover from(smem0, warp, lane);
  float acc[128];
#pragma unroll
  for (int i = 0; i < 128; i++) acc[i] = 0.f;
  from.release();
#pragma unroll 1
  for (int t = 0; t < w.tiles; t++) {
    uint32_t p[4][4];
    from.await();
    from.get(p);
    const float2 factor = from.get();
    from.release();
    await_tile(smem0, t);
    if (__any_sync(~0u, factor.x != 1.f || factor.y != 1.f)) rescale(acc, factor);
    start_output(acc, p, tile_at(smem0, t) + 4 * BOX);
    wgmma_wait<0>(acc);
    release_tile(smem0, t, lane);
  }
  from.await();
  write_output(a, w, acc, from.get(), smem0, 1, warp, lane);
}
