// Tensors to pointers. Python guarantees dtypes, shapes and contiguity once per plan.

void decode(int64_t kernel, const at::Tensor& q, const at::Tensor& cache, const at::Tensor& topk, const at::Tensor& block_table,
            const at::Tensor& seq_lens, const at::Tensor& k_scale, const at::Tensor& v_scale, const at::Tensor& out, const at::Tensor& partial,
            const at::Tensor& lse, const at::Tensor& tickets, int64_t q_len, int64_t num_kv_splits, int64_t num_xcds, double sm_scale) {
  DecodeArguments a = {};
  a.q = q.data_ptr();
  a.cache = cache.data_ptr();
  a.topk = topk.data_ptr<int>();
  a.block_table = block_table.data_ptr<int>();
  a.seq_lens = seq_lens.data_ptr<int>();
  a.k_scale = k_scale.data_ptr<float>();
  a.v_scale = v_scale.data_ptr<float>();
  a.out = out.data_ptr();
  a.partial = partial.data_ptr();
  a.lse = lse.data_ptr<float>();
  a.tickets = (unsigned*)tickets.data_ptr<int>();
  a.rows = (int)q.size(0);
  a.requests = (int)seq_lens.numel();
  a.kv_heads = (int)topk.size(0);
  a.q_len = (int)q_len;
  a.heads = (int)(q.size(1) / topk.size(0));
  a.num_slots = (int)topk.size(2);
  a.topk_rows = (int)topk.size(1);
  a.table_stride = (int)block_table.size(1);
  a.num_kv_splits = (int)num_kv_splits;
  a.num_xcds = (int)num_xcds;
  a.sm_scale = (float)sm_scale;
  const char* problem = launch_decode((int)kernel, a);
  TORCH_CHECK(problem == nullptr, "the HIP kernels could not be launched: ", problem);
}
