// The waves of a workgroup saw different tokens: adds up their sums, each for a quarter of the output dims, and writes the rows.

DEVICE void store_sums(WaveSums LDS* to, const Accumulator& sums, const Softmax<2, 0>& softmax, const Lane& at) {
#pragma unroll
  for (int d = 0; d < kScales; ++d) to->values[d][at.lane] = sums.values[d];
  if (at.group) return;
  to->total[at.column] = sums.total[0];
  to->shift[at.column] = softmax.limit == -kInfinity ? -kInfinity : softmax.shift;  // a wave that has seen nothing weighs nothing
}

// row: index of the lane's row in `to`, or -1 for a column without a query head.
template <Traits T>
DEVICE void merge_waves(const Shared<T> LDS* shared, const Destination<kHeadDim>& to, int row, float v_scale, const Lane& at) {
  float shift[kWaves], weight[kWaves], largest = -kInfinity, total = 0;
#pragma unroll
  for (int w = 0; w < kWaves; ++w) largest = fmaxf(largest, shift[w] = shared->waves[w].sums.shift[at.column]);
#pragma unroll
  for (int w = 0; w < kWaves; ++w) {
    weight[w] = __builtin_amdgcn_exp2f(shift[w] - largest);
    total += weight[w] * shared->waves[w].sums.total[at.column];
  }
  const float scale = v_scale / total;
#pragma unroll
  for (int i = 0; i < kScales / kWaves; ++i) {
    const int d = at.wave * (kScales / kWaves) + i;
    f32x4 sum = {};
#pragma unroll
    for (int w = 0; w < kWaves; ++w) sum += weight[w] * shared->waves[w].sums.values[d][at.lane];
    if (row >= 0) *(bf16x4*)(to.row(row) + 16 * d + 4 * at.group) = __builtin_convertvector(sum * scale, bf16x4);
  }
  if (row >= 0 && !to.whole && threadIdx.x < 16) to.lse[(u64)row * to.num_kv_splits + to.split] = largest + __builtin_amdgcn_logf(total);
}
