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
static void decode(L*, const void* kv, long rows, const Args& a, int blocks, unsigned seed) {
  if constexpr (L::KV == Kv::e5m2) {
    launch([&] { mla_unpacked<L>(a); }, L::THREADS, L::SMEM, a, blocks, seed);
  } else {
    const int page = 1 << a.page_bits, box = L::PAGED && page < TILE ? page : TILE, row_bytes = L::BYTES / TILE;
    const CUtensorMap wide{(const uint8_t*)kv, rows, row_bytes, 128, box, 128}, rope{(const uint8_t*)kv, rows, row_bytes, 64, box, 64};
    launch([&] { mla_direct<L>(wide, rope, a); }, L::THREADS, L::SMEM, a, blocks, seed);
  }
}

extern "C" int mla_args_bytes() { return sizeof(Args); }

// One decode. Returns nothing, or what went wrong.
extern "C" const char* mla_on_cpu(int variant, const void* kv, long rows, const Args* a, int blocks, unsigned seed) {
  try {
    if (!with_variant(variant, [&](auto* v) { decode(v, kv, rows, *a, blocks, seed); })) return "no such variant";
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
  return nullptr;
}
