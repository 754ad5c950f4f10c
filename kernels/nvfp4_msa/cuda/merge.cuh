// The warps of a block, then the splits of a (row, KV head): the last block to arrive combines them.
#pragma once
#include "attend.cuh"

constexpr int MERGE_BARRIER = 1;
constexpr int MERGE_PITCH = HEAD_DIM * 4 + 16;           // bytes of a row of fp32 sums: neighbouring rows in other banks
constexpr int MERGE_BYTES = WARPS * ROWS * MERGE_PITCH, SUMS_BYTES = WARPS * ROWS * 8;

// Dims 4 (tid % 8 + 8 k) to + 3 of row tid / 8, for k = 0 .. 3.
struct Piece {
  int row, eighth;
  __device__ __forceinline__ explicit Piece(int tid) : row(tid >> 3), eighth(tid & 7) {}
  __device__ __forceinline__ int quad(int k) const { return eighth + 8 * k; }
};

// `o` is this thread's piece of the output, times 1 / v_scale.
__device__ __forceinline__ void store_output(const Args& a, const Work& w, const Piece& piece, const float4 (&o)[4]) {
  if (piece.row >= a.group) return;
  const float scale = __ldg(a.v_scale);
  uint2* dst = reinterpret_cast<uint2*>(a.out + ((size_t)w.pair * a.group + piece.row) * HEAD_DIM);
#pragma unroll
  for (int k = 0; k < 4; k++)
    dst[piece.quad(k)] = make_uint2(pack_bf16(o[k].x * scale, o[k].y * scale), pack_bf16(o[k].z * scale, o[k].w * scale));
}

// The sums of a block: o is normalised; returns the base-2 logarithm of its weight. `sums` and `merge` are shared memory that nobody reads
// any more once all warps have arrived; float2 (maximum, sum) [WARPS][ROWS] and rows of MERGE_PITCH bytes.
__device__ __forceinline__ float merge_warps(float4 (&o)[4], const Softmax& x, float2* sums, uint8_t* merge, const Piece& piece, int warp, int lane) {
  const int g = lane >> 2, c = lane & 3;
  if (c == 0) {
    sums[warp * ROWS + g] = make_float2(x.m[0], x.l[0]);
    sums[warp * ROWS + g + 8] = make_float2(x.m[1], x.l[2]);
  }
  bar_sync(MERGE_BARRIER, THREADS);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float4* row = reinterpret_cast<float4*>(merge + (warp * ROWS + g + 8 * h) * MERGE_PITCH + c * 32);
#pragma unroll
    for (int u = 0; u < 4; u++)
#pragma unroll
      for (int b = 0; b < 2; b++)
        row[u * 8 + b] = make_float4(x.acc[4 * u][2 * h + b], x.acc[4 * u + 1][2 * h + b], x.acc[4 * u + 2][2 * h + b], x.acc[4 * u + 3][2 * h + b]);
  }
  float top = -INFINITY, total = 0.f, factor[WARPS];
#pragma unroll
  for (int i = 0; i < WARPS; i++) top = fmaxf(top, sums[i * ROWS + piece.row].x);
#pragma unroll
  for (int i = 0; i < WARPS; i++) {
    const float2 sum = sums[i * ROWS + piece.row];
    factor[i] = exp2_approx(sum.x - top);
    total = fmaf(factor[i], sum.y, total);
  }
  const float unit = UNPACKED_UNIT / total;
  bar_sync(MERGE_BARRIER, THREADS);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    o[k] = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
      const float4 y = *reinterpret_cast<const float4*>(merge + (i * ROWS + piece.row) * MERGE_PITCH + piece.quad(k) * 16);
      const float f = factor[i] * unit;
      o[k] = make_float4(fmaf(f, y.x, o[k].x), fmaf(f, y.y, o[k].y), fmaf(f, y.z, o[k].z), fmaf(f, y.w, o[k].w));
    }
  }
  return top + log2_approx(total);
}

// Stores the outputs of a split; whether all active splits have now done so.
__device__ __forceinline__ bool hand_in(const Args& a, const Work& w, const Piece& piece, const float4 (&o)[4], float lse, int active, int tid) {
  const size_t row = ((size_t)w.pair * a.splits + w.split) * ROWS + piece.row;
#pragma unroll
  for (int k = 0; k < 4; k++) __stcg(a.part + row * (HEAD_DIM / 4) + piece.quad(k), make_uint2(pack_f16(o[k].x, o[k].y), pack_f16(o[k].z, o[k].w)));
  if (piece.eighth == 0) __stcg(a.part_lse + row, lse);
  __threadfence();
  bar_sync(MERGE_BARRIER, THREADS);
  const bool last = bar_or(MERGE_BARRIER, THREADS, tid == 0 && atomicAdd(a.tickets + w.pair, 1u) == (unsigned)active - 1);
  if (last) {
    __threadfence();
    if (tid == 0) a.tickets[w.pair] = 0;                 // for the next launch
  }
  return last;
}

// The sum of all active splits, in their order.
__device__ __forceinline__ void combine_splits(const Args& a, const Work& w, const Piece& piece, int active, float4 (&o)[4]) {
  const size_t first = (size_t)w.pair * a.splits * ROWS + piece.row;
  float top = -INFINITY, total = 0.f;
#pragma unroll 4
  for (int i = 0; i < active; i++) top = fmaxf(top, __ldcg(a.part_lse + first + i * ROWS));
#pragma unroll
  for (int k = 0; k < 4; k++) o[k] = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 2
  for (int i = 0; i < active; i++) {
    const float weight = exp2_approx(__ldcg(a.part_lse + first + i * ROWS) - top);
    total += weight;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const uint2 x = __ldcg(a.part + (first + i * ROWS) * (HEAD_DIM / 4) + piece.quad(k));
      const float2 lo = unpack_f16(x.x), hi = unpack_f16(x.y);
      o[k] = make_float4(fmaf(weight, lo.x, o[k].x), fmaf(weight, lo.y, o[k].y), fmaf(weight, hi.x, o[k].z), fmaf(weight, hi.y, o[k].w));
    }
  }
#pragma unroll
  for (int k = 0; k < 4; k++) o[k] = make_float4(o[k].x / total, o[k].y / total, o[k].z / total, o[k].w / total);
}
