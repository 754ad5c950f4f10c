// Tensors to pointers. Python guarantees dtypes, shapes and dense rows once per plan.

void decode(int64_t kernel, const at::Tensor& q, const at::Tensor& kv, const at::Tensor& kv_scale, const at::Tensor& qo_indptr,
            const at::Tensor& kv_indptr, const at::Tensor& out, const at::Tensor& partial, const at::Tensor& lse, const at::Tensor& tickets,
            int64_t rows_per_sequence, int64_t num_kv_splits, double sm_scale) {
  DecodeArguments a = {};
  a.q = q.data_ptr();
  a.kv = kv.data_ptr();
  a.kv_scale = kv_scale.data_ptr();
  a.qo_indptr = qo_indptr.data_ptr<int>();
  a.kv_indptr = kv_indptr.data_ptr<int>();
  a.out = out.data_ptr();
  a.partial = partial.data_ptr();
  a.lse = lse.data_ptr<float>();
  a.tickets = (unsigned*)tickets.data_ptr<int>();
  a.sequences = (int)qo_indptr.numel() - 1;
  a.heads = (int)q.size(1);
  a.rows_per_sequence = (int)rows_per_sequence;
  a.num_kv_splits = (int)num_kv_splits;
  a.scale_stride = kv_scale.dim() == 2 ? (int)kv_scale.stride(0) : 0;
  a.sm_scale = (float)sm_scale;
  const char* problem = launch_decode((int)kernel, a);
  TORCH_CHECK(problem == nullptr, "the HIP kernels could not be launched: ", problem);
}
