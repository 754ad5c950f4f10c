// The host side on a CPU: every cluster of a launch, one after another in a random order.
#include "variants.cuh"

static thread_local std::string failure;

template <class Kernel>
static void launch(Kernel kernel, int threads, size_t shared_bytes, const Args& a, int blocks, unsigned seed) {
  std::vector<int> clusters(blocks * a.groups);
  for (size_t i = 0; i < clusters.size(); i++) clusters[i] = (int)i;
  std::mt19937 random(seed);
  std::shuffle(clusters.begin(), clusters.end(), random);
  for (const int i : clusters) machine::run_cluster(kernel, a.cluster, i % blocks, i / blocks, threads, shared_bytes, random());
}
template <class L>
static void launch_fp8(const void* kv, long rows, const Args& a, int blocks, unsigned seed) {
  const int page = 1 << a.page_bits, box = L::PAGED && page < TILE ? page : TILE;
  const CUtensorMap nope{(const uint8_t*)kv, rows, D_QK, 128, box, 128}, rope{(const uint8_t*)kv, rows, D_QK, 64, box, 64};
  launch([&] { mla_fp8<L>(nope, rope, a); }, L::THREADS, L::SMEM, a, blocks, seed);
}
template <class L>
static void launch_fp4(const Args& a, int blocks, unsigned seed) {
  launch([&] { mla_fp4<L>(a); }, L::THREADS, L::SMEM, a, blocks, seed);
}

extern "C" int mla_args_bytes() { return sizeof(Args); }

// One decode. Returns nothing, or what went wrong.
extern "C" const char* mla_on_cpu(int variant, const void* kv, long rows, const Args* a, int blocks, unsigned seed) {
  try {
    switch (variant) {
      case 0: launch_fp8<Wide>(kv, rows, *a, blocks, seed); break;
      case 1: launch_fp8<Narrow>(kv, rows, *a, blocks, seed); break;
      case 2: launch_fp8<Paged>(kv, rows, *a, blocks, seed); break;
      case 3: launch_fp4<Pairs2>(*a, blocks, seed); break;
      case 4: launch_fp4<Pairs3>(*a, blocks, seed); break;
      case 5: launch_fp4<Single2>(*a, blocks, seed); break;
      case 6: launch_fp4<Single3>(*a, blocks, seed); break;
      default: return "no such variant";
    }
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
  return nullptr;
}
