// Host side: launches on the default queue.

template <Traits T>
static void launch(const DecodeArguments& a) {
  constexpr int kRows = 16 * T.row_blocks;
  if (a.sequences == 0 || a.rows_per_sequence == 0) return;
  auto* out = (__bf16*)a.out;
  auto* partial = (__bf16*)a.partial;
  const dim3 grid(a.sequences, a.num_kv_splits, (a.rows_per_sequence + kRows - 1) / kRows);
  mla_decode<T><<<grid, kThreads>>>((const __bf16*)a.q, (const u8*)a.kv, (const u8*)a.kv_scale, a.block_table, a.qo_indptr, a.kv_indptr, out, partial,
                                    a.lse, a.tickets, a.heads, a.num_kv_splits, a.scale_stride, a.table_stride, a.page_bits, a.sm_scale);
  if (a.num_kv_splits > 1 && !T.last_arriver) {
    const dim3 rows(a.sequences, (a.rows_per_sequence + kWaves - 1) / kWaves);
    mla_combine<<<rows, kThreads>>>(out, partial, a.lse, a.qo_indptr, a.kv_indptr, a.heads, a.num_kv_splits, T.tile);
  }
}
