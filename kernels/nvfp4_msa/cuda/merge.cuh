// The warps of a block, then the blocks of a cluster, which are the splits of a (row, KV head).
#pragma once
#include "attend.cuh"

constexpr int START_BARRIER = 1, MERGE_BARRIER = 2;
constexpr int OCTET = 8;                       // neighbouring dims: 16 bytes in f16 or bf16
constexpr int ROW_OCTETS = HEAD_DIM / OCTET;
constexpr int SHARE_PITCH = HEAD_DIM * 2 + 64; // bytes of a row of f16: neighbouring rows in other banks

// What a thread of a block of WARPS warps sums and stores: OCTETS times eight neighbouring dims of one row. Threads may be left over.
template <int WARPS_>
struct Piece {
  static constexpr int WARPS = WARPS_, THREADS = WARPS * 32, ROW_THREADS = THREADS / ROWS < ROW_OCTETS ? THREADS / ROWS : ROW_OCTETS;
  static constexpr int OCTETS = ROW_OCTETS / ROW_THREADS;
  static constexpr int SHARES_BYTES = WARPS * ROWS * SHARE_PITCH, SUMS_BYTES = WARPS * ROWS * 8;
  int row, first;
  uint32_t o[OCTETS][4];                       // f16 pairs
  __device__ __forceinline__ explicit Piece(int tid) : row(tid / ROW_THREADS), first(tid % ROW_THREADS), o{} {}
  __device__ __forceinline__ bool there() const { return row < ROWS; }
  __device__ __forceinline__ int octet(int k) const { return first + ROW_THREADS * k; }
};

// o += f * y, y: f16 pairs
__device__ __forceinline__ void add_octet(float (&o)[OCTET], float f, const uint32_t (&y)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 pair = unpack_f16(y[i]);
    o[2 * i] = fmaf(f, pair.x, o[2 * i]);
    o[2 * i + 1] = fmaf(f, pair.y, o[2 * i + 1]);
  }
}

__device__ __forceinline__ void store_octet(const Args& a, const Work& w, int row, int octet, const float (&o)[OCTET]) {
  uint32_t x[4];
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] = pack_bf16(o[2 * i], o[2 * i + 1]);
  reinterpret_cast<uint4*>(a.out + ((size_t)w.pair * a.group + row) * HEAD_DIM)[octet] = make_uint4(x[0], x[1], x[2], x[3]);
}

// Of a block's rows g and g + 8, where lane = 4 g + c: what makes this warp's acc its share of the normalised output, and the base-2
// logarithm of the rows' weight.
struct Totals {
  float factor[2], lse[2];
};

// `sums`: shared memory, float2 (what P is relative to, sum) [WARPS][ROWS].
template <int WARPS>
__device__ __forceinline__ Totals block_totals(const Softmax& x, float2* sums, int tid) {
  const int warp = tid >> 5, g = (tid & 31) >> 2;
  if ((tid & 3) == 0) {
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
    totals.factor[h] = exp2_approx(x.m[h] - top) * (UNPACKED_UNIT * rcp_approx(total));
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
__device__ __forceinline__ void merge_warps(P& piece, const Softmax& x, const Totals& totals, uint8_t* shares, int tid) {
  store_share(shares + (tid >> 5) * ROWS * SHARE_PITCH, x, totals, tid & 31);
  bar_sync(MERGE_BARRIER, P::THREADS);
  if (!piece.there()) return;
#pragma unroll
  for (int i = 0; i < P::WARPS; i++)
#pragma unroll
    for (int k = 0; k < P::OCTETS; k++) {
      uint32_t y[4];
      ld_shared(y, smem_u32(shares) + (i * ROWS + piece.row) * SHARE_PITCH + piece.octet(k) * 16);
#pragma unroll
      for (int j = 0; j < 4; j++) piece.o[k][j] = add_f16x2(piece.o[k][j], y[j]);
    }
}

// The output of a block that is alone.
template <class P>
__device__ __forceinline__ void store_output(const Args& a, const Work& w, const P& piece, float v_scale) {
#pragma unroll
  for (int k = 0; k < P::OCTETS; k++) {
    float o[OCTET] = {};
    add_octet(o, v_scale, piece.o[k]);
    if (piece.row < a.group) store_octet(a, w, piece.row, piece.octet(k), o);
  }
}

// What the blocks of a cluster send each other: block r of C owns rows 16 r / C to 16 (r + 1) / C - 1 and combines what all of them have of
// these. It does not overlay what a slower block still uses.
constexpr int INBOX_BYTES = ROWS * HEAD_DIM * 2, WEIGHTS_BYTES = ROWS * 8;
struct Inbox {
  uint32_t shares, weights;    // shared memory: f16 [C][16 / C][128]; float2 (base-2 logarithm of the row's weight, 0) [C][16 / C]
  uint32_t full;               // mbarrier
  int split, split_bits;

  __device__ __forceinline__ int rows_bits() const { return 4 - split_bits; }
  __device__ __forceinline__ int splits() const { return 1 << split_bits; }
  // One thread, before the block's cluster_arrive.
  __device__ __forceinline__ void init() const {
    mbar_init(full, 1);
    mbar_init_fence();
    mbar_expect(full, INBOX_BYTES + WEIGHTS_BYTES);
  }
  __device__ __forceinline__ int slot(int source, int row) const { return source << rows_bits() | (row & (1 << rows_bits()) - 1); }
  __device__ __forceinline__ void send_octet(int row, int octet, const uint32_t (&o)[4]) const {
    const int owner = row >> rows_bits();
    const uint32_t dst = cluster_addr(shares, owner) + slot(split, row) * HEAD_DIM * 2 + octet * 16, bar = cluster_addr(full, owner);
    st_async(dst, make_float2(__uint_as_float(o[0]), __uint_as_float(o[1])), bar);
    st_async(dst + 8, make_float2(__uint_as_float(o[2]), __uint_as_float(o[3])), bar);
  }
  __device__ __forceinline__ void send_weight(int row, float lse) const {
    const int owner = row >> rows_bits();
    st_async(cluster_addr(weights, owner) + slot(split, row) * 8, make_float2(lse, 0.f), cluster_addr(full, owner));
  }
};

// What this block has, to the owners. `totals`: of the rows of the first warp's lanes.
template <class P>
__device__ __forceinline__ void send(const Inbox& box, const P& piece, const Totals& totals, int tid) {
  if (piece.there())
#pragma unroll
    for (int k = 0; k < P::OCTETS; k++) box.send_octet(piece.row, piece.octet(k), piece.o[k]);
  if (tid < 32 && (tid & 3) == 0)
    for (int h = 0; h < 2; h++) box.send_weight((tid >> 2) + 8 * h, totals.lse[h]);
}

// The sum over the splits, in their order, of an octet of each of this block's rows; a row that sees nothing becomes zero.
__device__ __forceinline__ void combine(const Args& a, const Work& w, const Inbox& box, const float2* weights, float v_scale, int tid) {
  const int row = tid / ROW_OCTETS, octet = tid % ROW_OCTETS, out_row = w.split << box.rows_bits() | row;
  mbar_wait(box.full, 0);
  if (row >> box.rows_bits() || out_row >= a.group) return;
  float lse[MAX_SPLITS], top = -INFINITY, total = 0.f;
#pragma unroll
  for (int s = 0; s < MAX_SPLITS; s++) {
    lse[s] = s < box.splits() ? weights[box.slot(s, row)].x : -INFINITY;
    top = fmaxf(top, lse[s]);
  }
  float o[OCTET] = {};
#pragma unroll
  for (int s = 0; s < MAX_SPLITS; s++) total += lse[s] == -INFINITY ? 0.f : exp2_approx(lse[s] - top);
  const float scale = total == 0.f ? 0.f : v_scale * rcp_approx(total);
#pragma unroll
  for (int s = 0; s < MAX_SPLITS; s++) {                   // those that are not there count for nothing, as the first one's share
    uint32_t share[4];
    ld_shared(share, box.shares + (box.slot(s < box.splits() ? s : 0, row) * ROW_OCTETS + octet) * 16);
    add_octet(o, lse[s] == -INFINITY ? 0.f : exp2_approx(lse[s] - top) * scale, share);
  }
  store_octet(a, w, out_row, octet, o);
}
