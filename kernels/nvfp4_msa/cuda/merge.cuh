// The warps of a block, then the splits of a (row, KV head): the last block to arrive combines them.
#pragma once
#include "attend.cuh"

constexpr int START_BARRIER = 1, MERGE_BARRIER = 2;
constexpr int OCTET = 8;                       // neighbouring dims: 16 bytes in f16 or bf16
constexpr int ROW_OCTETS = HEAD_DIM / OCTET;
constexpr int SHARE_PITCH = HEAD_DIM * 2 + 64; // bytes of a row of f16: neighbouring rows in other banks

// What a thread of a block of WARPS warps sums and stores: OCTETS times eight neighbouring dims of one row.
template <int WARPS_>
struct Piece {
  static constexpr int WARPS = WARPS_, THREADS = WARPS * 32, ROW_THREADS = THREADS / ROWS, OCTETS = ROW_OCTETS / ROW_THREADS;
  static constexpr int SHARES_BYTES = WARPS * ROWS * SHARE_PITCH, SUMS_BYTES = WARPS * ROWS * 8;
  int row, first;
  float o[OCTETS][OCTET];
  __device__ __forceinline__ explicit Piece(int tid) : row(tid / ROW_THREADS), first(tid % ROW_THREADS), o{} {}
  __device__ __forceinline__ int octet(int k) const { return first + ROW_THREADS * k; }
  __device__ __forceinline__ void scale(float f) {
#pragma unroll
    for (int k = 0; k < OCTETS; k++)
#pragma unroll
      for (int i = 0; i < OCTET; i++) o[k][i] *= f;
  }
  __device__ __forceinline__ void add(int k, float f, const uint4& y) {   // f16
    const uint32_t words[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 pair = unpack_f16(words[i]);
      o[k][2 * i] = fmaf(f, pair.x, o[k][2 * i]);
      o[k][2 * i + 1] = fmaf(f, pair.y, o[k][2 * i + 1]);
    }
  }
};

// The output is o * scale.
template <class P>
__device__ __forceinline__ void store_output(const Args& a, const Work& w, const P& piece, float scale) {
  if (piece.row >= a.group) return;
  uint4* dst = reinterpret_cast<uint4*>(a.out + ((size_t)w.pair * a.group + piece.row) * HEAD_DIM);
#pragma unroll
  for (int k = 0; k < P::OCTETS; k++) {
    uint32_t x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = pack_bf16(piece.o[k][2 * i] * scale, piece.o[k][2 * i + 1] * scale);
    dst[piece.octet(k)] = make_uint4(x[0], x[1], x[2], x[3]);
  }
}

// Of a block's rows g and g + 8, where lane = 4 g + c: what makes this warp's acc its share of the normalised output, and the base-2
// logarithm of the rows' weight.
struct Totals {
  float factor[2], lse[2];
};

// `sums`: shared memory, float2 (what P is relative to, sum) [WARPS][ROWS].
template <int WARPS>
__device__ __forceinline__ Totals block_totals(const Softmax& x, float2* sums, int warp, int lane) {
  const int g = lane >> 2;
  if ((lane & 3) == 0) {
    sums[warp * ROWS + g] = make_float2(x.m[0], x.l[0]);
    sums[warp * ROWS + g + 8] = make_float2(x.m[1], x.l[2]);
  }
  bar_sync(MERGE_BARRIER, WARPS * 32);
  Totals totals;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float top = -INFINITY, total = 0.f;
#pragma unroll
    for (int i = 0; i < WARPS; i++) top = fmaxf(top, sums[i * ROWS + g + 8 * h].x);
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
      const float2 sum = sums[i * ROWS + g + 8 * h];
      total = fmaf(exp2_approx(sum.x - top), sum.y, total);
    }
    totals.factor[h] = exp2_approx(x.m[h] - top) * (UNPACKED_UNIT / total);
    totals.lse[h] = top + log2_approx(total);
  }
  return totals;
}

// A warp's share of the normalised output in f16, to rows of SHARE_PITCH bytes.
__device__ __forceinline__ void store_share(uint8_t* rows, const Softmax& x, const Totals& totals, int lane) {
  const int g = lane >> 2, c = lane & 3;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    uint4* row = reinterpret_cast<uint4*>(rows + (g + 8 * h) * SHARE_PITCH);
    const float f = totals.factor[h];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      uint32_t y[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int t = 4 * u + (i & 1) * 2, element = 2 * h + (i >> 1);   // dims 32 u + 8 c + 2 i and + 1
        y[i] = pack_f16(x.acc[t][element] * f, x.acc[t + 1][element] * f);
      }
      row[u * 4 + c] = make_uint4(y[0], y[1], y[2], y[3]);
    }
  }
}

// The normalised output of a block. `shares`: shared memory that nobody reads any more once all warps have arrived at block_totals.
template <class P>
__device__ __forceinline__ void merge_warps(P& piece, const Softmax& x, const Totals& totals, uint8_t* shares, int warp, int lane) {
  store_share(shares + warp * ROWS * SHARE_PITCH, x, totals, lane);
  bar_sync(MERGE_BARRIER, P::THREADS);
#pragma unroll
  for (int i = 0; i < P::WARPS; i++)
#pragma unroll
    for (int k = 0; k < P::OCTETS; k++)
      piece.add(k, 1.f, reinterpret_cast<const uint4*>(shares + (i * ROWS + piece.row) * SHARE_PITCH)[piece.octet(k)]);
}

// Stores the output of a split; whether all active splits have now done so.
template <class P>
__device__ __forceinline__ bool hand_in(const Args& a, const Work& w, const P& piece, const Totals& totals, int active, int tid) {
  const size_t first = ((size_t)w.pair * a.splits + w.split) * ROWS;
#pragma unroll
  for (int k = 0; k < P::OCTETS; k++) {
    uint32_t x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = pack_f16(piece.o[k][2 * i], piece.o[k][2 * i + 1]);
    __stcg(a.part + (first + piece.row) * ROW_OCTETS + piece.octet(k), make_uint4(x[0], x[1], x[2], x[3]));
  }
  if (tid < 32 && (tid & 3) == 0) {
    __stcg(a.part_lse + first + (tid >> 2), totals.lse[0]);
    __stcg(a.part_lse + first + (tid >> 2) + 8, totals.lse[1]);
  }
  bar_sync(MERGE_BARRIER, P::THREADS);
  const bool last = bar_or(MERGE_BARRIER, P::THREADS, tid == 0 && draw_ticket(a.tickets + w.pair) == (unsigned)active - 1);
  if (last && tid == 0) a.tickets[w.pair] = 0;             // for the next launch
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
    uint4 part[AT_ONCE][P::OCTETS];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const bool there = start + i < active;
      const size_t row = first + (size_t)(there ? start + i : 0) * ROWS;
      lse[i] = there ? __ldcg(a.part_lse + row) : -INFINITY;
#pragma unroll
      for (int k = 0; k < P::OCTETS; k++) part[i][k] = __ldcg(a.part + row * ROW_OCTETS + piece.octet(k));
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
      for (int k = 0; k < P::OCTETS; k++) piece.add(k, weight, part[i][k]);
    }
  }
  piece.scale(1.f / total);
}
