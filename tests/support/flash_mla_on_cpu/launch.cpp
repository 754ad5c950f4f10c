// The host side on a CPU: every block of a launch, one after another in a random order, then the merge's.
#include "merge.cuh"
#include "sparse.cuh"

static thread_local std::string failure;

template <class Kernel>
static void launch(Kernel kernel, int blocks, int threads, size_t shared_bytes, std::mt19937& random) {
  std::vector<unsigned> order(blocks);
  for (int i = 0; i < blocks; i++) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (const unsigned block : order) {
    in_flight.clear();
    const auto run = [&] {
      machine::self->block->index.x = block;
      kernel();
    };
    machine::run_cluster(run, 1, 0, 0, threads, shared_bytes, random());
  }
}

extern "C" int sparse_args_bytes() { return sizeof(Args); }

// One decode. Returns nothing, or what went wrong.
extern "C" const char* sparse_on_cpu(const Args* a, unsigned seed) {
  std::mt19937 random(seed);
  try {
    launch([&] { sparse_v32(*a); }, a->tokens * a->splits * a->row_blocks, THREADS, SMEM_BYTES, random);
    if (a->splits > 1) launch([&] { merge_splits(*a); }, (a->tokens * a->heads * 2 + MERGE_WARPS - 1) / MERGE_WARPS, MERGE_WARPS * 32, 0, random);
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
  return nullptr;
}
