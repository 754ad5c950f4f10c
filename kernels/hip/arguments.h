// What the host hands to a launch; see mla_decode for shapes. It stands before launch.hip and before binding.cpp.
struct DecodeArguments {
  const void *q, *kv, *kv_scale;
  const int *block_table, *qo_indptr, *kv_indptr;
  void *out, *partial;
  float* lse;
  unsigned* tickets;
  int sequences, heads;
  int rows_per_sequence;  // the most query rows (tokens x heads) that a sequence has
  int num_kv_splits;
  int scale_stride, table_stride, page_bits;
  float sm_scale;
};

// Launches kernel number `kernel` of the module, and the combine if there are splits, on the default queue.
// Returns nullptr, or what went wrong.
const char* launch_decode(int kernel, const DecodeArguments& arguments);
