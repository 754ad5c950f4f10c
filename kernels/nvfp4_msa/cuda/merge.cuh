// The warps of a block, then the blocks of a cluster, which are the splits of a (row, KV head).
#pragma once
#include "attend.cuh"

constexpr int START_BARRIER = 1, MERGE_BARRIER = 2;
constexpr int LARGEST_V = 6 * 448, LARGEST_F16 = 65504;   // a code times a block scale
constexpr float LOWEST = -3.4028235e38f;       // below every logarithm of a weight but -inf: exp2(-inf - LOWEST) is 0

// What a thread of a block of WARPS warps sums and stores: OCTETS times eight neighbouring dims of one of ROWS rows. Threads may be left over.
// Sums are divided once, by whoever stores them.
template <int ROWS_, int WARPS_>
struct Piece {
  static constexpr int ROWS = ROWS_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr int ROW_THREADS = THREADS / ROWS < ROW_OCTETS ? THREADS / ROWS : ROW_OCTETS, OCTETS = ROW_OCTETS / ROW_THREADS;
  int row, first;
  uint32_t o[OCTETS][4];                       // f16 pairs of the output times `total`
  float top, total;                            // the row's weight is 2^top total
  static_assert(WARPS * LARGEST_V <= LARGEST_F16);   // `o`, if all shares weigh the same
  __device__ __forceinline__ explicit Piece(int tid) : row(tid / ROW_THREADS), first(tid % ROW_THREADS), o{}, top(-INFINITY), total(0.f) {}
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

// Where an octet of a row lies in the output, in octets.
__device__ __forceinline__ uint32_t octet_place(const Args& a, const Work& w, int row, int octet) {
  return (uint32_t)(w.pair * a.group + row) * ROW_OCTETS + octet;
}

__device__ __forceinline__ void store_octet(const Args& a, uint32_t place, const float (&o)[OCTET]) {
  uint32_t x[4];
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] = pack_bf16(o[2 * i], o[2 * i + 1]);
  reinterpret_cast<uint4*>(a.out)[place] = make_uint4(x[0], x[1], x[2], x[3]);
}

// What a warp leaves for the others in shared memory: its own normalised output in `share`, and base-2 logarithms of the rows' weights in
// `lses`, [ROWS][WARPS]. A warp that saw nothing has zeros of weight 0.
template <int WARPS, class FORM>
__device__ __forceinline__ void leave_share(uint8_t* share, float* lses, const Softmax<FORM>& x, int warp, int lane) {
  const bool first_peer = (lane & (FORM::END_PEER - FORM::FIRST_PEER)) == 0;
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    factor[h] = x.sum(h) == 0.f ? 0.f : UNPACKED_UNIT * rcp_approx(x.sum(h));
    if (first_peer) lses[FORM::row(lane, h) * WARPS + warp] = x.m[h] + log2_approx(x.sum(h));
  }
  FORM::store(share, x, factor, lane);
}

// The piece of the sum of all shares, of which at least one has a weight; they lie `pitch` bytes apart.
template <class P>
__device__ __forceinline__ void sum_shares(P& piece, uint32_t shares, int pitch, const float* lses) {
  float weight[P::WARPS];
#pragma unroll
  for (int i = 0; i < P::WARPS; i++) {
    weight[i] = lses[piece.row * P::WARPS + i];
    piece.top = fmaxf(piece.top, weight[i]);
  }
#pragma unroll
  for (int i = 0; i < P::WARPS; i++) {
    weight[i] = exp2_approx(weight[i] - piece.top);
    piece.total += weight[i];
    const uint32_t factor = pack_f16(weight[i], weight[i]);
#pragma unroll
    for (int k = 0; k < P::OCTETS; k++) {
      uint32_t y[4];
      ld_shared(y, shares + i * pitch + piece.row * SHARE_PITCH + piece.octet(k) * 16);
#pragma unroll
      for (int j = 0; j < 4; j++) piece.o[k][j] = fma_f16x2(factor, y[j], piece.o[k][j]);
    }
  }
}

// What a sum is multiplied by; a row that sees nothing becomes zero.
__device__ __forceinline__ float output_scale(float total, float v_scale) { return total == 0.f ? 0.f : v_scale * rcp_approx(total); }

// The output of a block that is alone.
template <class P>
__device__ __forceinline__ void store_output(const Args& a, const Work& w, const P& piece, float v_scale) {
  const float scale = output_scale(piece.total, v_scale);
#pragma unroll
  for (int k = 0; k < P::OCTETS; k++) {
    float o[OCTET] = {};
    add_octet(o, scale, piece.o[k]);
    if (piece.row < a.group) store_octet(a, octet_place(a, w, piece.row, piece.octet(k)), o);
  }
}

// What the blocks of a cluster send each other: block r of C owns rows ROWS r / C to ROWS (r + 1) / C - 1 and combines what all of them have
// of these. It does not overlay what a slower block still uses. A block stays until all that the others send it has come, so that no store of
// theirs finds its memory gone; for its own stores, which are made of registers, it need not stay.
template <int ROWS>
struct Inbox {
  static constexpr int ROWS_BITS = ROWS == 16 ? 4 : 3, SHARES_BYTES = ROWS * HEAD_DIM * 2, WEIGHTS_BYTES = ROWS * 8;
  static_assert(1 << ROWS_BITS == ROWS && MAX_SPLITS <= ROWS);
  uint32_t shares, weights;    // shared memory: f16 [C][ROWS / C][128], float2 [C][ROWS / C]: o, (top, total) of pieces
  uint32_t full;               // mbarrier
  int split, split_bits;

  __device__ __forceinline__ int rows_bits() const { return ROWS_BITS - split_bits; }
  __device__ __forceinline__ int splits() const { return 1 << split_bits; }
  // All threads, before anything else of the cluster.
  __device__ __forceinline__ void open(int tid) const {
    if (split_bits == 0) return;
    if (tid == 0) {
      mbar_init(full, 1);
      mbar_init_fence();
      mbar_expect(full, SHARES_BYTES + WEIGHTS_BYTES);
    }
    __syncwarp();
    cluster_arrive();
  }
  // All threads, before they send: then all blocks of the cluster have opened theirs.
  __device__ __forceinline__ void await_others() const {
    if (split_bits) cluster_wait();
  }
  __device__ __forceinline__ int slot(int source, int row) const { return source << rows_bits() | (row & (1 << rows_bits()) - 1); }
  __device__ __forceinline__ void send_octet(int row, int octet, const uint32_t (&o)[4]) const {
    const int owner = row >> rows_bits();
    st_async(cluster_addr(shares, owner) + (slot(split, row) * ROW_OCTETS + octet) * 16, o, cluster_addr(full, owner));
  }
  __device__ __forceinline__ void send_weight(int row, float top, float total) const {
    const int owner = row >> rows_bits();
    st_async(cluster_addr(weights, owner) + slot(split, row) * 8, make_float2(top, total), cluster_addr(full, owner));
  }
};

// What this block has, to the owners.
template <class P>
__device__ __forceinline__ void send(const Inbox<P::ROWS>& box, const P& piece) {
  if (!piece.there()) return;
#pragma unroll
  for (int k = 0; k < P::OCTETS; k++) box.send_octet(piece.row, piece.octet(k), piece.o[k]);
  if (piece.first == 0) box.send_weight(piece.row, piece.top, piece.total);
}

// What is summed of an octet of a row over the splits.
struct Sum {
  float top = LOWEST, total = 0.f, o[OCTET] = {};   // as in a piece

  // Two splits at once: neither's loads wait for the other's.
  __device__ __forceinline__ void add(const float2 (&weight)[2], const uint32_t (&share)[2][4]) {
    const float before = top;
    top = fmaxf(top, fmaxf(weight[0].x, weight[1].x));
    const float kept = exp2_approx(before - top);
    total *= kept;
#pragma unroll
    for (int i = 0; i < OCTET; i++) o[i] *= kept;
#pragma unroll
    for (int t = 0; t < 2; t++) {
      const float factor = exp2_approx(weight[t].x - top);
      total = fmaf(factor, weight[t].y, total);
      add_octet(o, factor, share[t]);
    }
  }
};

// The sum over the splits, in their order, of an octet of each of this block's rows.
template <int ROWS>
__device__ __forceinline__ void combine(const Args& a, const Work& w, const Inbox<ROWS>& box, const float2* weights, float v_scale, int tid) {
  const int row = tid / ROW_OCTETS, octet = tid % ROW_OCTETS, out_row = w.split << box.rows_bits() | row;
  if (row >> box.rows_bits()) return;              // every block has a row 0, whose threads keep it until all has come
  uint32_t place = octet_place(a, w, out_row, octet);
  keep(place);                                     // known before the wait
  mbar_spin(box.full, 0);
  if (out_row >= a.group) return;
  Sum sum;
#pragma unroll 1
  for (int s = 0; s < box.splits(); s += 2) {
    float2 weight[2];
    uint32_t share[2][4];
#pragma unroll
    for (int t = 0; t < 2; t++) {
      const int slot = box.slot(s + t, row);
      weight[t] = weights[slot];
      ld_shared(share[t], box.shares + (slot * ROW_OCTETS + octet) * 16);
    }
    sum.add(weight, share);
  }
  const float scale = output_scale(sum.total, v_scale);
#pragma unroll
  for (int i = 0; i < OCTET; i++) sum.o[i] *= scale;
  store_octet(a, place, sum.o);
}
