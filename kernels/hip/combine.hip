// What the workgroups of a split KV leave behind, and its combination: out = sum of the splits' normalised rows, weighted by 2^lse.

// Final rows where one split holds all of a sequence, else normalised partial rows and the base-2 logarithm of their weight.
template <int kDims>
struct Destination {
  __bf16* out;      // [total rows, kDims]
  __bf16* partial;  // [total rows, num_kv_splits, kDims]
  float* lse;       // [total rows, num_kv_splits]
  int num_kv_splits, split;
  bool whole;       // this split is the only one of its sequence

  MEMBER __bf16* row(u32 index) const {
    return whole ? out + (u64)index * kDims : partial + ((u64)index * num_kv_splits + split) * kDims;
  }
};

// Rows without KV.
template <int kDims>
DEVICE void store_zeros(__bf16* rows, int count) {
  for (int i = threadIdx.x; i < count * (kDims / 8); i += kThreads) ((i32x4*)rows)[i] = i32x4{0, 0, 0, 0};
}

DEVICE float wave_max(float value) {
#pragma unroll
  for (int mask = 1; mask < 64; mask *= 2) value = fmaxf(value, __shfl_xor(value, mask));
  return value;
}
DEVICE float wave_sum(float value) {
#pragma unroll
  for (int mask = 1; mask < 64; mask *= 2) value += __shfl_xor(value, mask);
  return value;
}

// One wave, one row: lane i weighs split i (so there are at most 64), and each lane adds up kLaneDims dims.
template <int kDims>
DEVICE void combine_row(__bf16* out, const __bf16* partial, const float* lse, u32 row, int num_kv_splits, int active, int lane) {
  const float own = lse[(u64)row * num_kv_splits + min(lane, active - 1)];
  const float weight_log2 = lane < active ? own : -kInfinity;
  const float largest = wave_max(weight_log2);
  // If every score of the row was -infinity, so are all weights, and their differences are NaN like the row itself.
  float weight = __builtin_amdgcn_exp2f(weight_log2 - largest);
  weight /= wave_sum(weight);
  constexpr int kLaneDims = kDims / 64;
  typedef __bf16 Part __attribute__((ext_vector_type(kLaneDims)));
  const Part* from = (const Part*)(partial + (u64)row * num_kv_splits * kDims) + lane;
  float sum[kLaneDims] = {};
#pragma unroll 4
  for (int split = 0; split < active; ++split) {
    const float w = __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, weight), split));
    const Part part = from[split * 64];
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) sum[i] += w * (float)part[i];
  }
  Part result;
#pragma unroll
  for (int i = 0; i < kLaneDims; ++i) result[i] = (__bf16)sum[i];
  ((Part*)(out + (u64)row * kDims))[lane] = result;
}

// Whether this workgroup is the last of `active` to come here. What it wrote before is visible to the last one, which leaves
// the ticket counter at zero for the next launch.
DEVICE bool arrives_last(u32* counter, int active, LDS u32* shared_ticket) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");  // waits for this wave's stores and writes L2 back
  barrier();
  if (threadIdx.x == 0) *shared_ticket = __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  barrier();
  const bool last = __builtin_amdgcn_readfirstlane(*shared_ticket) == (u32)active - 1;
  if (last) {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    if (threadIdx.x == 0) __hip_atomic_store(counter, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  }
  return last;
}
