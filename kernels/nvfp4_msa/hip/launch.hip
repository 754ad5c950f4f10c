// Host side: launches on the default queue.

template <Traits T>
static void launch(const DecodeArguments& a) {
  if (a.rows == 0) return;
  const int unit = a.q_len * a.num_xcds;
  const dim3 grid((a.rows + unit - 1) / unit * unit, a.num_kv_splits, a.kv_heads);
  nvfp4_decode<T><<<grid, kThreads>>>((const __bf16*)a.q, (const u8*)a.cache, a.topk, a.block_table, a.seq_lens, a.k_scale, a.v_scale, (__bf16*)a.out,
                                      (__bf16*)a.partial, a.lse, a.tickets, a.rows, a.requests, a.q_len, a.heads, a.num_slots, a.topk_rows, a.table_stride,
                                      a.num_kv_splits, a.num_xcds, a.sm_scale);
}
