// From the warpgroups' accumulators to the output.
//
// The blocks of a cluster send each other (max, sum), so that each can scale what it has to the cluster's normalised output. Every
// block then sends to each other block that block's share of the 16 x 512 outputs, and sums the share it owns. Both exchanges are
// asynchronous copies that the receiver's mbarrier counts: a cluster barrier would cost more. Clusters of one sequence (groups)
// meet in global memory, where the last to arrive combines them.
//
// A unit is 128 dims of one row: what one warp holds of it. The owner of unit u in a cluster of C is block u * C / 64.
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
constexpr int FINISH_BARRIER = 15;

// Shared memory of the combine; every block of a cluster has the same layout. swap, outbox and inbox overlay the KV stages.
struct Exchange {
  float2* table;                                         // [MAX_CLUSTER][16] (max, sum) of every block of the cluster
  float2* ml;                                            // [warpgroups][16] (max, sum) of this block's warpgroups
  float* warp_sum;                                       // [warpgroups][4][16]
  float4* swap;                                          // [2 halves][warpgroups - 1][8][128]
  uint8_t *outbox, *inbox;                               // [16][OUTBOX_PITCH]; [cluster][units of a block][UNIT_BYTES]
  uint32_t table_full, inbox_full;                       // mbarriers
};

// The units that block `rank` of a cluster owns.
struct Share {
  unsigned first, end, units;                            // units: room for one source
  __device__ __forceinline__ Share(unsigned rank, unsigned cluster) {
    first = (rank * UNITS + cluster - 1) / cluster;
    end = ((rank + 1) * UNITS + cluster - 1) / cluster;
    units = (UNITS + cluster - 1) / cluster;
  }
};

// One thread, before the block's cluster_arrive.
template <Kv KV>
__device__ __forceinline__ void init_exchange(const Exchange& e, unsigned rank, unsigned cluster) {
  const Share mine(rank, cluster);
  mbar_init(e.table_full, 1);
  mbar_init(e.inbox_full, 1);
  mbar_init_fence();
  mbar_expect(e.table_full, cluster * ROWS * 8);
  mbar_expect(e.inbox_full, cluster * (mine.end - mine.first) * UNIT_BYTES<KV>);
}

// Four values of a share, to where they lie between blocks and back.
template <Kv KV>
__device__ __forceinline__ void store_share(uint8_t* at, float4 o) {
  if constexpr (KV == Kv::bf16)
    *reinterpret_cast<float4*>(at) = o;
  else if constexpr (KV == Kv::e4m3)
    *reinterpret_cast<uint2*>(at) = make_uint2(pack_f16(o.x, o.y), pack_f16(o.z, o.w));
  else
    *reinterpret_cast<uint2*>(at) = make_uint2(pack_bf16(o.x, o.y), pack_bf16(o.z, o.w));
}
template <Kv KV>
__device__ __forceinline__ float4 load_share(const uint8_t* at) {
  if constexpr (KV == Kv::bf16) {
    return *reinterpret_cast<const float4*>(at);
  } else {
    const uint2 x = *reinterpret_cast<const uint2*>(at);
    if constexpr (KV == Kv::e4m3) {
      const float2 lo = unpack_f16(x.x), hi = unpack_f16(x.y);
      return make_float4(lo.x, lo.y, hi.x, hi.y);
    } else {
      return make_float4(__uint_as_float(x.x << 16), __uint_as_float(x.x & 0xffff0000u), __uint_as_float(x.y << 16), __uint_as_float(x.y & 0xffff0000u));
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

// Sums of the four warps of a warpgroup (each saw other tokens). ml[wg] is complete once the warpgroup has synchronised again.
__device__ __forceinline__ void reduce_sums(const Exchange& e, Softmax& x, int wg, int warp, int lane) {
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int o = 4; o < 32; o <<= 1) x.l[i] += __shfl_xor_sync(~0u, x.l[i], o);
  if (lane < 4) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int r = (i >> 1) * 8 + lane * 2 + (i & 1);
      e.warp_sum[(wg * 4 + warp) * 16 + r] = x.l[i];
      if (warp == 0) e.ml[wg * 16 + r].x = x.m[i];
    }
  }
  bar_sync(1 + wg, 128);
  if (warp == 0 && lane < 16) {
    const float* s = e.warp_sum + wg * 64 + lane;
    e.ml[wg * 16 + lane].y = s[0] + s[16] + s[32] + s[48];
  }
}

// (max, sum) of the block, over its warpgroups, to the tables of all blocks of the cluster; by `threads` threads, who wait for those of the others.
template <int SCORING>
__device__ __forceinline__ void exchange_sums(const Args& a, const Work& w, const Exchange& e, int tid, int threads) {
  for (int i = tid; i < a.cluster * ROWS; i += threads) {
    const int row = i & 15, rank = i >> 4;
    float2 ml = e.ml[row];
#pragma unroll
    for (int wg = 1; wg < SCORING; wg++) {
      const float2 other = e.ml[wg * ROWS + row];
      const float common = fmaxf(ml.x, other.x);
      ml = make_float2(common, ml.y * part_weight(ml.x, common) + other.y * part_weight(other.x, common));
    }
    if (a.cluster == 1)
      e.table[row] = ml;
    else
      st_async(cluster_addr(smem_u32(e.table + w.rank * ROWS + row), rank), ml, cluster_addr(e.table_full, rank));
  }
  if (a.cluster == 1)
    bar_sync(FINISH_BARRIER, threads);
  else
    mbar_wait(e.table_full, 0);
}

// Factors that take this lane's accumulators (rows lane / 4 and lane / 4 + 8, so far relative to the maxima `reference`) to the cluster's
// normalised output, and the cluster's (max, sum) of those rows. The four lanes of a row share the table's 16 entries.
__device__ __forceinline__ void final_factors(const Args& a, const Exchange& e, const float (&reference)[2], int lane, float (&factor)[2],
                                              float2 (&total)[2]) {
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const int row = k * 8 + (lane >> 2);
    float2 ml[4];
    float common = -INFINITY, sum = 0.f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int c = i * 4 + (lane & 3);
      ml[i] = c < a.cluster ? e.table[c * ROWS + row] : make_float2(-INFINITY, 0.f);
      common = fmaxf(common, ml[i].x);
    }
#pragma unroll
    for (int o = 1; o < 4; o <<= 1) common = fmaxf(common, __shfl_xor_sync(~0u, common, o));
#pragma unroll
    for (int i = 0; i < 4; i++) sum = fmaf(part_weight(ml[i].x, common), ml[i].y, sum);
#pragma unroll
    for (int o = 1; o < 4; o <<= 1) sum += __shfl_xor_sync(~0u, sum, o);
    total[k] = make_float2(common, sum);
    factor[k] = part_weight(reference[k], common) * inverse_sum(sum);
  }
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

// What a block keeps of row half k: to its outbox, or, if it is alone, to the output or to its group's partial output.
template <Kv KV>
__device__ __forceinline__ void deliver_rows(const Args& a, const Work& w, const Exchange& e, const Output& x, float v_scale, int k, int warp, int lane) {
  const int row = k * 8 + (lane >> 2), dim = warp * 128 + first_dim<KV>(lane);
  if (a.cluster > 1) {
#pragma unroll
    for (int c = 0; c < 8; c++) {
      store_share<KV>(e.outbox + row * OUTBOX_PITCH<KV> + (dim + c * 16) * VALUE_BYTES<KV>, four_dims<KV>(x, c, k, lane));
    }
  } else if (a.groups == 1) {
#pragma unroll
    for (int c = 0; c < 8; c++) store_out(a, w, row, dim + c * 16, four_dims<KV>(x, c, k, lane), v_scale);
  } else {
#pragma unroll
    for (int c = 0; c < 8; c++) __stcg(part_of(a, w.block, w.group, row, dim + c * 16), four_dims<KV>(x, c, k, lane));
  }
}

// One lane sends one row of the outbox, at most two owners' worth.
template <Kv KV>
__device__ __forceinline__ void send_row(const Args& a, const Work& w, const Exchange& e, unsigned row) {
  for (unsigned unit = row * 4, next; unit < row * 4 + 4; unit = next) {
    const unsigned owner = unit * a.cluster / UNITS;
    const Share share(owner, a.cluster);
    next = min(share.end, row * 4 + 4);
    bulk_copy_to_cluster(cluster_addr(smem_u32(e.inbox) + (w.rank * share.units + unit - share.first) * UNIT_BYTES<KV>, owner),
                         smem_u32(e.outbox) + row * OUTBOX_PITCH<KV> + (unit & 3) * UNIT_BYTES<KV>, (next - unit) * UNIT_BYTES<KV>,
                         cluster_addr(e.inbox_full, owner));
  }
}

// Four dims of a unit, summed over the cluster.
template <Kv KV>
__device__ __forceinline__ float4 sum_inbox(const Args& a, const Exchange& e, const Share& mine, int local_unit, int piece) {
  float4 o = make_float4(0.f, 0.f, 0.f, 0.f);
  const uint8_t* src = e.inbox + local_unit * UNIT_BYTES<KV> + piece * 4 * VALUE_BYTES<KV>;
#pragma unroll 8
  for (int c = 0; c < a.cluster; c++) {
    const float4 x = load_share<KV>(src + c * mine.units * UNIT_BYTES<KV>);
    o = make_float4(o.x + x.x, o.y + x.y, o.z + x.z, o.w + x.w);
  }
  return o;
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

// Called by the NWG warpgroups that hold output, of every block of the cluster, when e.ml holds the (max, sum) of the SCORING warpgroups that
// saw tokens and nobody of the block reads a KV stage any more. `reference`: the maxima that x is relative to, rows lane / 4 and lane / 4 + 8.
template <Kv KV, int NWG, int SCORING>
__device__ __forceinline__ void combine(const Args& a, const Work& w, const Exchange& e, Output& x, const float (&reference)[2], float v_scale, int wg,
                                        int warp, int lane) {
  constexpr int N = NWG * 128;
  const int tid = wg * 128 + warp * 32 + lane;
  cluster_wait();                                        // all blocks of the cluster have started
  exchange_sums<SCORING>(a, w, e, tid, N);               // nobody of the cluster reads a KV stage any more

  float factor[2];
  float2 total[2];
  final_factors(a, e, reference, lane, factor, total);
  x.scale(factor[0], factor[1]);
  if (NWG == 1) {
    deliver_rows<KV>(a, w, e, x, v_scale, 0, warp, lane);
    deliver_rows<KV>(a, w, e, x, v_scale, 1, warp, lane);
  } else if (wg == 0) {
    give_rows<NWG>(e, x, 1, wg, tid & 127);
    bar_sync(FINISH_BARRIER, N);
    take_rows<NWG>(e, x, 0, tid & 127);
    deliver_rows<KV>(a, w, e, x, v_scale, 0, warp, lane);
  } else if (wg == 1) {
    give_rows<NWG>(e, x, 0, wg, tid & 127);
    bar_sync(FINISH_BARRIER, N);
    take_rows<NWG>(e, x, 1, tid & 127);
    deliver_rows<KV>(a, w, e, x, v_scale, 1, warp, lane);
  } else {
    give_rows<NWG>(e, x, 0, wg, tid & 127);
    give_rows<NWG>(e, x, 1, wg, tid & 127);
    bar_sync(FINISH_BARRIER, N);
  }
  const Share mine(w.rank, a.cluster);
  if (a.cluster > 1) {
    fence_async_proxy();
    bar_sync(FINISH_BARRIER, N);
    const int row = lane * NWG * 4 + wg * 4 + warp;      // each copy takes its warp some 70 cycles: spread them
    if (row < ROWS) send_row<KV>(a, w, e, row);
    __syncwarp();
    mbar_wait(e.inbox_full, 0);
    cluster_arrive();
    for (int i = mine.first * 32 + tid; i < mine.end * 32; i += N) {
      const int unit = i >> 5, piece = i & 31, out_row = unit >> 2, dim = (unit & 3) * 128 + piece * 4;
      const float4 o = sum_inbox<KV>(a, e, mine, unit - mine.first, piece);
      if (a.groups == 1)
        store_out(a, w, out_row, dim, o, v_scale);
      else
        __stcg(part_of(a, w.block, w.group, out_row, dim), o);
    }
  }
  if (a.groups > 1) {
    // Every block of the cluster writes the same (max, sum).
    if (wg == 0 && warp == 0 && (lane & 3) == 0)
#pragma unroll
      for (int k = 0; k < 2; k++) a.part_ml[((size_t)w.block * a.groups + w.group) * ROWS + k * 8 + (lane >> 2)] = total[k];
    combine_groups<NWG>(a, w, mine, v_scale, tid);
  }
  if (a.cluster > 1) cluster_wait();                     // nobody leaves while its outbox is being read
}
