// Writing the rows of a workgroup.

template <Traits T>
DEVICE void store_row(__bf16* row, const Accumulator& sums, float scale, const Lane& at) {
#pragma unroll
  for (int d = 0; d < 8; ++d) {
    __bf16* to = row + at.wave * kWaveDims + Values<T>::dim(d, at.group);
    const bf16x4 four = __builtin_convertvector(sums.values[d] * scale, bf16x4);
    if (Values<T>::kDimStep == 1) {
      *(bf16x4*)to = four;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i * Values<T>::kDimStep] = four[i];
    }
  }
}

// index: of the row among all query rows. v_scale: what one unit of V is worth.
template <Traits T>
DEVICE void store_result(const Destination<kVDim>& to, u32 index, const Accumulator& sums, const TileSoftmax<T>& softmax, float v_scale, const Lane& at) {
  const float total = sums.total[0];
  store_row<T>(to.row(index), sums, v_scale / total, at);
  if (!to.whole && at.wave == 0 && at.group == 0) to.lse[(u64)index * to.num_kv_splits + to.split] = softmax.shift + __builtin_amdgcn_logf(total);
}
