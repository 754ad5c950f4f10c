// The warps of a block, then the splits of a (row, KV head): the last block to arrive combines them.
#pragma once
#include "attend.cuh"

constexpr int START_BARRIER = 1, MERGE_BARRIER = 2;
constexpr int MERGE_PITCH = HEAD_DIM * 4 + 16;           // bytes of a row of fp32 sums: neighbouring rows in other banks

// What a thread of a block of WARPS warps sums and stores: QUADS times four neighbouring dims of one row.
template <int WARPS_>
struct Piece {
  static constexpr int WARPS = WARPS_, THREADS = WARPS * 32, ROW_THREADS = THREADS / ROWS, QUADS = HEAD_DIM / 4 / ROW_THREADS;
  static constexpr int MERGE_BYTES = WARPS * ROWS * MERGE_PITCH, SUMS_BYTES = WARPS * ROWS * 8;
  int row, first;
  float4 o[QUADS];
  __device__ __forceinline__ explicit Piece(int tid) : row(tid / ROW_THREADS), first(tid % ROW_THREADS), o{} {}
  __device__ __forceinline__ int quad(int k) const { return first + ROW_THREADS * k; }
  __device__ __forceinline__ void scale(float f) {
#pragma unroll
    for (int k = 0; k < QUADS; k++) o[k] = make_float4(o[k].x * f, o[k].y * f, o[k].z * f, o[k].w * f);
  }
  __device__ __forceinline__ void add(int k, float f, const float4& y) {
    o[k] = make_float4(fmaf(f, y.x, o[k].x), fmaf(f, y.y, o[k].y), fmaf(f, y.z, o[k].z), fmaf(f, y.w, o[k].w));
  }
};

// The output is o * scale.
template <class P>
__device__ __forceinline__ void store_output(const Args& a, const Work& w, const P& piece, float scale) {
  if (piece.row >= a.group) return;
  uint2* dst = reinterpret_cast<uint2*>(a.out + ((size_t)w.pair * a.group + piece.row) * HEAD_DIM);
#pragma unroll
  for (int k = 0; k < P::QUADS; k++) {
    const float4 o = piece.o[k];
    dst[piece.quad(k)] = make_uint2(pack_bf16(o.x * scale, o.y * scale), pack_bf16(o.z * scale, o.w * scale));
  }
}

// What one warp hands over: rows of MERGE_PITCH bytes.
__device__ __forceinline__ void store_sums(const Softmax& x, uint8_t* rows, int lane) {
  const int g = lane >> 2, c = lane & 3;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float4* row = reinterpret_cast<float4*>(rows + (g + 8 * h) * MERGE_PITCH + c * 32);
#pragma unroll
    for (int u = 0; u < 4; u++)
#pragma unroll
      for (int b = 0; b < 2; b++)
        row[u * 8 + b] = make_float4(x.acc[4 * u][2 * h + b], x.acc[4 * u + 1][2 * h + b], x.acc[4 * u + 2][2 * h + b], x.acc[4 * u + 3][2 * h + b]);
  }
}

// The sums of a block: piece.o is normalised; returns the base-2 logarithm of its weight. `sums` and `merge` are shared memory that nobody
// reads any more once all warps have arrived; float2 (what P is relative to, sum) [WARPS][ROWS] and the rows of all warps.
template <class P>
__device__ __forceinline__ float merge_warps(P& piece, const Softmax& x, float2* sums, uint8_t* merge, int warp, int lane) {
  if ((lane & 3) == 0) {
    sums[warp * ROWS + (lane >> 2)] = make_float2(x.m[0], x.l[0]);
    sums[warp * ROWS + (lane >> 2) + 8] = make_float2(x.m[1], x.l[2]);
  }
  bar_sync(MERGE_BARRIER, P::THREADS);
  store_sums(x, merge + warp * ROWS * MERGE_PITCH, lane);
  float top = -INFINITY, total = 0.f, factor[P::WARPS];
#pragma unroll
  for (int i = 0; i < P::WARPS; i++) top = fmaxf(top, sums[i * ROWS + piece.row].x);
#pragma unroll
  for (int i = 0; i < P::WARPS; i++) {
    const float2 sum = sums[i * ROWS + piece.row];
    factor[i] = exp2_approx(sum.x - top);
    total = fmaf(factor[i], sum.y, total);
  }
  bar_sync(MERGE_BARRIER, P::THREADS);
#pragma unroll
  for (int i = 0; i < P::WARPS; i++)
#pragma unroll
    for (int k = 0; k < P::QUADS; k++)
      piece.add(k, factor[i], *reinterpret_cast<const float4*>(merge + (i * ROWS + piece.row) * MERGE_PITCH + piece.quad(k) * 16));
  piece.scale(UNPACKED_UNIT / total);
  return top + log2_approx(total);
}

// Stores the outputs of a split; whether all active splits have now done so.
template <class P>
__device__ __forceinline__ bool hand_in(const Args& a, const Work& w, const P& piece, float lse, int active, int tid) {
  const size_t row = ((size_t)w.pair * a.splits + w.split) * ROWS + piece.row;
#pragma unroll
  for (int k = 0; k < P::QUADS; k++)
    __stcg(a.part + row * (HEAD_DIM / 4) + piece.quad(k), make_uint2(pack_f16(piece.o[k].x, piece.o[k].y), pack_f16(piece.o[k].z, piece.o[k].w)));
  if (piece.first == 0) __stcg(a.part_lse + row, lse);
  __threadfence();
  bar_sync(MERGE_BARRIER, P::THREADS);
  const bool last = bar_or(MERGE_BARRIER, P::THREADS, tid == 0 && atomicAdd(a.tickets + w.pair, 1u) == (unsigned)active - 1);
  if (last) {
    __threadfence();
    if (tid == 0) a.tickets[w.pair] = 0;                 // for the next launch
  }
  return last;
}

// The sum of all active splits, in their order; what AT_ONCE of them take is loaded together.
template <class P>
__device__ __forceinline__ void combine_splits(const Args& a, const Work& w, P& piece, int active) {
  constexpr int AT_ONCE = 4;
  const size_t first = (size_t)w.pair * a.splits * ROWS + piece.row;
  float top = -INFINITY, total = 0.f;
  piece.scale(0.f);
#pragma unroll 1
  for (int start = 0; start < active; start += AT_ONCE) {
    float lse[AT_ONCE];
    uint2 part[AT_ONCE][P::QUADS];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const bool there = start + i < active;
      const size_t row = first + (size_t)(there ? start + i : 0) * ROWS;
      lse[i] = there ? __ldcg(a.part_lse + row) : -INFINITY;
#pragma unroll
      for (int k = 0; k < P::QUADS; k++) part[i][k] = __ldcg(a.part + row * (HEAD_DIM / 4) + piece.quad(k));
    }
    const float before = top;
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) top = fmaxf(top, lse[i]);
    const float rescale = exp2_approx(before - top);
    total *= rescale;
    piece.scale(rescale);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const float weight = exp2_approx(lse[i] - top);
      total += weight;
#pragma unroll
      for (int k = 0; k < P::QUADS; k++) {
        const float2 lo = unpack_f16(part[i][k].x), hi = unpack_f16(part[i][k].y);
        piece.add(k, weight, make_float4(lo.x, lo.y, hi.x, hi.y));
      }
    }
  }
  piece.scale(1.f / total);
}
