// From the warpgroups' accumulators to the output.
//
// The blocks of a cluster send each other (max, sum), so that each can scale what it has to the cluster's normalised output. Every
// block then sends to each other block that block's share of the 16 x 512 outputs, and sums the share it owns. Both exchanges are
// asynchronous copies that the receiver's mbarrier counts: a cluster barrier would cost more. One warp does the first while the others make
// the output of their last tile. Clusters of one sequence (groups) meet in global memory, where the last to arrive combines them.
//
// A unit is 128 dims of one row: what one warp holds of it. Block r of a cluster owns `share` units from r * share.
#pragma once
#include "attend.cuh"

// What blocks send each other is f16 for fp8 caches, whose scale is applied later; bf16 for mxfp4 ones, whose values may not fit f16; and fp32 for
// bf16 ones, to whose rounding another would add as much again.
template <Kv KV>
constexpr int VALUE_BYTES = KV == Kv::bf16 ? 4 : 2;
constexpr int UNITS = ROWS * 4;
template <Kv KV>
constexpr int UNIT_BYTES = 128 * VALUE_BYTES<KV>;
template <Kv KV>
constexpr int OUTBOX_PITCH = D_V * VALUE_BYTES<KV> + 32;   // bytes; rows start in different banks
template <Kv KV>
constexpr int OUTBOX_BYTES = ROWS * OUTBOX_PITCH<KV>;
template <Kv KV>
constexpr int INBOX_BYTES = (UNITS + MAX_CLUSTER) * UNIT_BYTES<KV>;   // cluster * ceil(64 / cluster) units
constexpr int swap_bytes(int warpgroups) { return 2 * (warpgroups - 1) * 8 * 128 * 16; }
constexpr int TOTALS_BARRIER = 11, SUMS_BARRIER = 13, FINISH_BARRIER = 15;
constexpr int WRITING_LANES = 4;                           // of a warp that made scores: each has four rows' maxima and sums

// Shared memory of the combine; every block of a cluster has the same layout. swap and outbox overlay the KV stages, the inbox the queries: a
// block that has every other's (max, sum) knows that all have made their last scores.
struct Exchange {
  float2* table;                                         // [MAX_CLUSTER][16] (max, sum) of every block of the cluster
  float2* totals;                                        // [16] the cluster's maximum, and 1 / its sum
  float* maxima;                                         // [warpgroups][16] maxima of this block's warpgroups
  float* warp_sum;                                       // [warpgroups][4][16]
  float4* swap;                                          // [2 halves][warpgroups - 1][8][128]
  uint8_t *outbox, *inbox;                               // [16][OUTBOX_PITCH]; [cluster][units of a block][UNIT_BYTES]
  uint32_t table_full, inbox_full;                       // mbarriers
};

// The units that block `rank` of a cluster owns: `a.share` of them, the last ones less.
struct Share {
  int first, end;
  __device__ __forceinline__ Share(const Args& a, int rank) : first(min(rank * a.share, UNITS)), end(min(first + a.share, UNITS)) {}
};

// One thread, before the block's cluster_arrive.
template <Kv KV>
__device__ __forceinline__ void init_exchange(const Exchange& e, const Args& a, int rank) {
  const Share mine(a, rank);
  mbar_init(e.table_full, 1);
  mbar_init(e.inbox_full, 1);
  mbar_init_fence();
  if (a.cluster > 1) {
    mbar_expect(e.table_full, a.cluster * ROWS * 8);
    mbar_expect(e.inbox_full, (a.cluster - 1) * (mine.end - mine.first) * UNIT_BYTES<KV>);
  }
}

// Four values of a share to where they lie between blocks, and 16 bytes of them back.
template <Kv KV>
__device__ __forceinline__ void store_share(uint8_t* at, float4 o) {
  if constexpr (KV == Kv::bf16)
    *reinterpret_cast<float4*>(at) = o;
  else if constexpr (KV == Kv::e4m3)
    *reinterpret_cast<uint2*>(at) = make_uint2(pack_f16(o.x, o.y), pack_f16(o.z, o.w));
  else
    *reinterpret_cast<uint2*>(at) = make_uint2(pack_bf16(o.x, o.y), pack_bf16(o.z, o.w));
}
template <Kv KV, int N>
__device__ __forceinline__ void load_share(float (&x)[N], const uint8_t* at) {
  uint32_t raw[4];
  ld_shared(raw, smem_u32(at));
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (KV == Kv::bf16) {
      x[i] = __uint_as_float(raw[i]);
    } else {
      const float2 pair = KV == Kv::e4m3 ? unpack_f16(raw[i]) : make_float2(__uint_as_float(raw[i] << 16), __uint_as_float(raw[i] & 0xffff0000u));
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
}

// Weight of a part with maximum m under the common maximum; parts without tokens weigh nothing.
__device__ __forceinline__ float part_weight(float m, float common) { return m == -INFINITY ? 0.f : exp2_approx(m - common); }
__device__ __forceinline__ float inverse_sum(float sum) { return sum == 0.f ? 0.f : rcp_approx(sum); }

__device__ __forceinline__ void store_out(const Args& a, const Work& w, int row, int dim, float4 o, float s) {
  if (row < w.rows)
    *reinterpret_cast<uint2*>(a.out + ((size_t)w.first_row + row) * D_V + dim) = make_uint2(pack_bf16(o.x * s, o.y * s), pack_bf16(o.z * s, o.w * s));
}
// Group g's partial output in global memory.
__device__ __forceinline__ float4* part_of(const Args& a, int block, int g, int row, int dim) {
  return a.part + (((size_t)block * a.groups + g) * ROWS + row) * (D_V / 4) + dim / 4;
}
// Four values of this lane: row lane / 4 + 8 k, and of the warp's 128 dims 16 c + 4 (lane % 4) + {0, 1, 2, 3}, as 8-bit tiles leave them,
// or 16 c + 2 (lane % 4) + {0, 8, 1, 9}, as bf16 ones do.
__device__ __forceinline__ float4 acc_float4(const Output& x, int c, int k) {
  return make_float4(x.acc[2 * c][2 * k], x.acc[2 * c + 1][2 * k], x.acc[2 * c][2 * k + 1], x.acc[2 * c + 1][2 * k + 1]);
}

// Sums of the four warps of a warpgroup (each saw other tokens), for the warp that sends them.
__device__ __forceinline__ void reduce_sums(const Exchange& e, Softmax& x, int wg, int warp, int lane) {
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int o = 4; o < 32; o <<= 1) x.l[i] += __shfl_xor_sync(~0u, x.l[i], o);
  if (lane < WRITING_LANES) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int r = (i >> 1) * 8 + lane * 2 + (i & 1);
      e.warp_sum[(wg * 4 + warp) * ROWS + r] = x.l[i];
      if (warp == 0) e.maxima[wg * ROWS + r] = x.m[i];   // all four have the same
    }
  }
}

// (max, sum) of the block, over its warpgroups, to the tables of all blocks of the cluster. By one warp, whose two halves take ranks in turn.
template <int SCORING>
__device__ __forceinline__ void send_sums(const Args& a, const Work& w, const Exchange& e, int lane) {
  const int row = lane & 15;
  float2 ml = make_float2(e.maxima[row], 0.f);
#pragma unroll
  for (int wg = 1; wg < SCORING; wg++) ml.x = fmaxf(ml.x, e.maxima[wg * ROWS + row]);
#pragma unroll
  for (int wg = 0; wg < SCORING; wg++) {
    const float* s = e.warp_sum + wg * 4 * ROWS + row;
    ml.y = fmaf(s[0] + s[ROWS] + s[2 * ROWS] + s[3 * ROWS], part_weight(e.maxima[wg * ROWS + row], ml.x), ml.y);
  }
  if (a.cluster == 1) {
    e.table[row] = ml;
    return;
  }
#pragma unroll 1
  for (int rank = lane >> 4; rank < a.cluster; rank += 2)
    st_async(cluster_addr(smem_u32(e.table + w.rank * ROWS + row), rank), ml, cluster_addr(e.table_full, rank));
}

// The cluster's (max, sum) of each row, for those who hold output, and for the groups of the sequence. By the same warp.
__device__ __forceinline__ void add_sums(const Args& a, const Work& w, const Exchange& e, int lane) {
  const int row = lane & 15;
  float common = -INFINITY, sum = 0.f;
#pragma unroll 4
  for (int c = lane >> 4; c < a.cluster; c += 2) common = fmaxf(common, e.table[c * ROWS + row].x);
  common = fmaxf(common, __shfl_xor_sync(~0u, common, 16));
#pragma unroll 4
  for (int c = lane >> 4; c < a.cluster; c += 2) {
    const float2 ml = e.table[c * ROWS + row];
    sum = fmaf(ml.y, part_weight(ml.x, common), sum);
  }
  sum += __shfl_xor_sync(~0u, sum, 16);
  e.totals[row] = make_float2(common, inverse_sum(sum));
  // Every block of the cluster writes the same.
  if (a.groups > 1) a.part_ml[((size_t)w.block * a.groups + w.group) * ROWS + row] = make_float2(common, sum);
}

// One warp of a block that holds no output, when the sums of the block's warps are there. N threads hold output.
template <int SCORING, int N>
__device__ __forceinline__ void exchange_sums(const Args& a, const Work& w, const Exchange& e, int lane) {
  send_sums<SCORING>(a, w, e, lane);
  if (a.cluster > 1) mbar_poll(e.table_full, 0);
  __syncwarp();
  add_sums(a, w, e, lane);
  bar_sync(TOTALS_BARRIER, N + 32);                      // it needs not wait; compute-sanitizer does not follow who only arrives
}

// Row half k (rows lane / 4 + 8 k) is gathered by warpgroup k: what another warpgroup gives it, through shared memory.
template <int NWG>
__device__ __forceinline__ float4* swap_slot(const Exchange& e, int k, int giver, int lane_of_wg) {
  return e.swap + (k * (NWG - 1) + giver - (giver > k)) * 8 * 128 + lane_of_wg;
}
template <int NWG>
__device__ __forceinline__ void give_rows(const Exchange& e, const Output& x, int k, int wg, int lane_of_wg) {
#pragma unroll
  for (int c = 0; c < 8; c++) swap_slot<NWG>(e, k, wg, lane_of_wg)[c * 128] = acc_float4(x, c, k);
}
template <int NWG>
__device__ __forceinline__ void take_rows(const Exchange& e, Output& x, int k, int lane_of_wg) {
#pragma unroll
  for (int giver = 0; giver < NWG; giver++) {
    if (giver == k) continue;
#pragma unroll
    for (int c = 0; c < 8; c++) {
      const float4 y = swap_slot<NWG>(e, k, giver, lane_of_wg)[c * 128];
      x.acc[2 * c][2 * k] += y.x;
      x.acc[2 * c + 1][2 * k] += y.y;
      x.acc[2 * c][2 * k + 1] += y.z;
      x.acc[2 * c + 1][2 * k + 1] += y.w;
    }
  }
}

// The same as four dims in a row, from 16 c + first_dim(lane): bf16 lanes trade half of theirs with their neighbour.
template <Kv KV>
__device__ __forceinline__ int first_dim(int lane) {
  return KV == Kv::bf16 ? (lane & 1) * 8 + (lane & 2) * 2 : (lane & 3) * 4;
}
template <Kv KV>
__device__ __forceinline__ float4 four_dims(const Output& x, int c, int k, int lane) {
  const float4 o = acc_float4(x, c, k);
  if (KV != Kv::bf16) return o;
  const bool odd = lane & 1;
  const float u = __shfl_xor_sync(~0u, odd ? o.x : o.y, 1), v = __shfl_xor_sync(~0u, odd ? o.z : o.w, 1);
  return odd ? make_float4(u, v, o.y, o.w) : make_float4(o.x, o.z, u, v);
}

// What a block keeps of row half k: to its outbox, the units it owns to its inbox; or, if it is alone, to the output or to its group's partial output.
template <Kv KV>
__device__ __forceinline__ void deliver_rows(const Args& a, const Work& w, const Exchange& e, const Output& x, float v_scale, int k, int warp, int lane) {
  const int row = k * 8 + (lane >> 2), dim = warp * 128 + first_dim<KV>(lane);
  if (a.cluster > 1) {
    const int unit = row * 4 + warp;
    const bool own = (unsigned)(unit - w.rank * a.share) < (unsigned)a.share;
    uint8_t* at = own ? e.inbox + unit * UNIT_BYTES<KV> + first_dim<KV>(lane) * VALUE_BYTES<KV> : e.outbox + row * OUTBOX_PITCH<KV> + dim * VALUE_BYTES<KV>;
#pragma unroll
    for (int c = 0; c < 8; c++) store_share<KV>(at + c * 16 * VALUE_BYTES<KV>, four_dims<KV>(x, c, k, lane));
  } else if (a.groups == 1) {
#pragma unroll
    for (int c = 0; c < 8; c++) store_out(a, w, row, dim + c * 16, four_dims<KV>(x, c, k, lane), v_scale);
  } else {
#pragma unroll
    for (int c = 0; c < 8; c++) __stcg(part_of(a, w.block, w.group, row, dim + c * 16), four_dims<KV>(x, c, k, lane));
  }
}

// One lane sends one row of the outbox, to whoever owns it.
template <Kv KV>
__device__ __forceinline__ void send_row(const Args& a, const Work& w, const Exchange& e, int row) {
#pragma unroll 1
  for (int unit = row * 4, owner = unit * a.share_inverse >> 16, next; unit < row * 4 + 4; unit = next, owner++) {
    next = min((owner + 1) * a.share, row * 4 + 4);
    if (owner == w.rank) continue;                       // deliver_rows has left it in the inbox
    bulk_copy_to_cluster(cluster_addr(smem_u32(e.inbox) + ((w.rank - owner) * a.share + unit) * UNIT_BYTES<KV>, owner),
                         smem_u32(e.outbox) + row * OUTBOX_PITCH<KV> + (unit & 3) * UNIT_BYTES<KV>, (next - unit) * UNIT_BYTES<KV>,
                         cluster_addr(e.inbox_full, owner));
  }
}

// A block's share of the output, once the whole cluster's is in its inbox, in pieces of 16 bytes. By N threads; if there are twice as many as
// pieces, two lanes add the halves of the cluster.
template <Kv KV, int N>
__device__ __forceinline__ void store_share_sums(const Args& a, const Work& w, const Exchange& e, const Share& mine, float v_scale, int tid) {
  constexpr int PIECE = 16 / VALUE_BYTES<KV>;
  const int pieces = (mine.end - mine.first) * UNIT_BYTES<KV> / 16, two = pieces * 2 <= N;
#pragma unroll 1
  for (int i = tid >> two; i < (pieces + 31 & ~31); i += N) {   // whole warps
    const uint8_t* src = e.inbox + min(i, pieces - 1) * 16;
    float sum[PIECE] = {};
#pragma unroll 4
    for (int c = tid & two; c < a.cluster; c += 1 + two) {
      float x[PIECE];
      load_share<KV>(x, src + c * a.share * UNIT_BYTES<KV>);
#pragma unroll
      for (int j = 0; j < PIECE; j++) sum[j] += x[j];
    }
    if (two)
#pragma unroll
      for (float& x : sum) x += __shfl_xor_sync(~0u, x, 1);
    if (i >= pieces || (tid & two)) continue;
    const int at = mine.first * 128 + i * PIECE, row = at / D_V, dim = at % D_V;
#pragma unroll
    for (int j = 0; j < PIECE; j += 4) {
      const float4 o = make_float4(sum[j], sum[j + 1], sum[j + 2], sum[j + 3]);
      if (a.groups == 1)
        store_out(a, w, row, dim + j, o, v_scale);
      else
        __stcg(part_of(a, w.block, w.group, row, dim + j), o);
    }
  }
}

// The groups of a sequence: every block has written its share; the last of `groups` to arrive combines them.
template <int NWG>
__device__ __forceinline__ void combine_groups(const Args& a, const Work& w, const Share& mine, float v_scale, int tid) {
  constexpr int N = NWG * 128;
  __threadfence();
  bar_sync(FINISH_BARRIER, N);
  unsigned* ticket = a.tickets + (size_t)w.block * MAX_CLUSTER + w.rank;
  if (!bar_or(FINISH_BARRIER, N, tid == 0 && atomicAdd(ticket, 1u) == (unsigned)a.groups - 1)) return;
  __threadfence();
  if (tid == 0) *ticket = 0;                             // for the next launch
  for (int i = mine.first * 32 + tid; i < mine.end * 32; i += N) {
    const int row = i >> 7, dim = (i & 127) * 4;
    const float2* ml = a.part_ml + (size_t)w.block * a.groups * ROWS + row;
    float common = -INFINITY, sum = 0.f;
#pragma unroll 1
    for (int g = 0; g < a.groups; g++) common = fmaxf(common, __ldcg(ml + g * ROWS).x);
    float4 o = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 2
    for (int g = 0; g < a.groups; g++) {
      const float2 x = __ldcg(ml + g * ROWS);
      const float weight = part_weight(x.x, common) * x.y;
      const float4 y = __ldcg(part_of(a, w.block, g, row, dim));
      sum += weight;
      o = make_float4(fmaf(weight, y.x, o.x), fmaf(weight, y.y, o.y), fmaf(weight, y.z, o.z), fmaf(weight, y.w, o.w));
    }
    store_out(a, w, row, dim, o, v_scale * inverse_sum(sum));
  }
}

// Called by the NWG warpgroups that hold output, of every block of the cluster, while another warp is in exchange_sums. `reference`: the maxima
// that x is relative to, rows lane / 4 and lane / 4 + 8.
template <Kv KV, int NWG>
__device__ __forceinline__ void combine(const Args& a, const Work& w, const Exchange& e, Output& x, const float (&reference)[2], float v_scale, int wg,
                                        int warp, int lane) {
  constexpr int N = NWG * 128;
  const int tid = wg * 128 + warp * 32 + lane;
  bar_sync(TOTALS_BARRIER, N + 32);                      // nobody of this block reads a KV stage any more
  float factor[2];
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const float2 total = e.totals[k * 8 + (lane >> 2)];
    factor[k] = part_weight(reference[k], total.x) * total.y;
  }
  x.scale(factor[0], factor[1]);
  if (NWG == 1) {
    deliver_rows<KV>(a, w, e, x, v_scale, 0, warp, lane);
    deliver_rows<KV>(a, w, e, x, v_scale, 1, warp, lane);
  } else {
    if (wg != 0) give_rows<NWG>(e, x, 0, wg, tid & 127);
    if (wg != 1) give_rows<NWG>(e, x, 1, wg, tid & 127);
    bar_sync(FINISH_BARRIER, N);
    if (wg == 0) {
      take_rows<NWG>(e, x, 0, tid & 127);
      deliver_rows<KV>(a, w, e, x, v_scale, 0, warp, lane);
    } else if (wg == 1) {
      take_rows<NWG>(e, x, 1, tid & 127);
      deliver_rows<KV>(a, w, e, x, v_scale, 1, warp, lane);
    }
  }
  const Share mine(a, w.rank);
  if (a.cluster > 1) {
    fence_async_proxy();
    bar_sync(FINISH_BARRIER, N);
    const int row = lane * NWG * 4 + wg * 4 + warp;      // each copy takes its warp some 70 cycles: spread them
    if (row < ROWS) send_row<KV>(a, w, e, row);
    __syncwarp();
    mbar_poll(e.inbox_full, 0);
    cluster_arrive();
    store_share_sums<KV, N>(a, w, e, mine, v_scale, tid);
  }
  if (a.groups > 1) combine_groups<NWG>(a, w, mine, v_scale, tid);
  if (a.cluster > 1) cluster_wait();                     // nobody leaves while its outbox is being read
}
