// What the host hands to a launch; see nvfp4_decode for shapes. It stands before launch.hip and before binding.cpp.
struct DecodeArguments {
  const void *q, *cache;
  const int *topk, *block_table, *seq_lens;
  const float *k_scale, *v_scale;
  void *out, *partial;
  float* lse;
  unsigned* tickets;
  int rows, requests, kv_heads;
  int q_len;  // query rows of a request
  int heads;  // query heads of a KV head
  int num_slots, topk_rows, table_stride;
  int num_kv_splits;
  int num_xcds;  // that requests are dealt to in turn; 1: wherever they fall
  float sm_scale;
};

// Launches kernel number `kernel` of the module on the default queue. Returns nullptr, or what went wrong.
const char* launch_decode(int kernel, const DecodeArguments& arguments);
