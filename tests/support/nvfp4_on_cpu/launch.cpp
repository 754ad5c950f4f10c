// The host side of kernels/nvfp4_msa/cuda on a CPU (cuda_on_cpu/machine.h): every cluster of a launch, one after another in a random order.
#include "decode.cuh"

static thread_local std::string failure;

extern "C" int nvfp4_args_bytes() { return sizeof(Args); }
extern "C" int nvfp4_maps_bytes() { return sizeof(CUtensorMap); }

// One launch, its pairs in a random order. Returns nothing, or what went wrong.
extern "C" const char* nvfp4_on_cpu(int variant, long pages, const Args* a, unsigned seed) {
  try {
    std::mt19937 random(seed);
    std::vector<unsigned> pairs(a->rows * a->kv_heads);
    for (size_t i = 0; i < pairs.size(); i++) pairs[i] = (unsigned)i;
    std::shuffle(pairs.begin(), pairs.end(), random);
    const long plane_bytes = (long)a->kv_heads * PLANE * UNIT;
    const bool found = with_variant(variant, [&](auto* v) {
      using V = std::remove_pointer_t<decltype(v)>;
      constexpr int ROWS = TILE * UNIT / CODE_ROW, PLANES = V::Tiles::PLANES;
      const CUtensorMap codes{a->cache, plane_bytes / CODE_ROW, CODE_ROW, CODE_ROW, ROWS, 128, plane_bytes, 2 * plane_bytes, pages, PLANES};
      const CUtensorMap scales{a->cache, plane_bytes / SCALE_ROW, SCALE_ROW, SCALE_ROW, 1, 0, plane_bytes, 2 * plane_bytes, pages, PLANES};
      for (const unsigned pair : pairs)
        machine::run_cluster([&] { nvfp4_decode<V>(codes, scales, *a); }, 1 << a->split_bits, pair % a->kv_heads, pair / a->kv_heads, V::THREADS,
                             V::SMEM, random());
    });
    if (!found) return "no such variant";
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
  return nullptr;
}
