// One thread block cluster on a CPU. Every CUDA thread is a fiber that runs until it must wait; warps are resumed in a random order, now and
// then one starts late or sleeps for long, and what is asynchronous on the device (bulk copies, wgmma) happens at a random time between its start and the
// wait for it. A schedule follows from its seed. What a GPU would not survive ends the run with a Failure: waits that nothing can end, lanes of a warp at different
// collective operations, addresses outside of shared memory or in that of a block that has ended, arrivals that nobody expects.
#pragma once
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace machine {

using Failure = std::runtime_error;
constexpr int kWarp = 32;
constexpr size_t kStack = 128 << 10;
constexpr uint32_t kOffsetBits = 24;  // of a shared memory address; the rank of the block lies above

struct Mbarrier {
  int count = 0, pending = 0;
  long bytes = 0;
  unsigned phase = 0;
  void check() {
    if (pending == 0 && bytes == 0) {
      pending = count;
      phase++;
    }
  }
};

struct NamedBarrier {
  int arrived = 0;
  bool any = false, result = false;
  unsigned generation = 0;
};

struct Warp {
  int arrived = 0;
  unsigned generation = 0;
  const char* operation = nullptr;
  void* lanes[kWarp] = {};
};

struct Cluster;
struct Block {
  Cluster* cluster;
  dim3 index;
  int rank, live = 0;
  std::unique_ptr<uint8_t[]> storage;
  uint8_t* shared;
  size_t shared_bytes;
  std::map<uint32_t, Mbarrier> mbarriers;
  std::map<int, NamedBarrier> named;
};

// One wgmma between its issue and its wait, as every thread of the warpgroup describes it; `d` is where its sums go.
enum class Format { e4m3, e5m2, bf16 };  // of A; B is e4m3 or bf16
struct Wgmma {
  uint64_t a, b;
  bool accumulate;
  Format format;
  float* d;
  bool a_in_registers = false;
  uint32_t registers[4] = {};  // this lane's, as they were at the issue
};

struct Fiber {
  ucontext_t context;
  Block* block;
  Warp* warp;
  dim3 thread;
  int lane;
  bool done = false;
  const char* waits_for = "";
  std::function<bool()> ready;  // empty: it can run
  unsigned cluster_arrivals = 0;
  std::vector<Wgmma> wgmmas;                              // issued and not waited for
  size_t wgmmas_run = 0;                                  // of `wgmmas`
  std::vector<size_t> wgmma_groups;                       // how many of `wgmmas` there were at every commit
  std::map<float*, std::array<float, 16>> wgmma_sums;     // of accumulators that wgmmas have changed and no wait has given back
};

inline Fiber* self = nullptr;

struct Event {
  std::function<void()> happen;
  long when;  // the round of the schedule
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Event> in_flight;
  long round = 0;
  std::mt19937 random;
  std::function<void()> kernel;
  std::string error;
  ucontext_t scheduler;
  unsigned live = 0, arrived = 0, generation = 0;  // of the cluster barrier
  bool chance(int of) { return random() % of == 0; }
  long soon_or_late() { return round + (long)random() % (chance(8) ? 1000 : 8); }
  void leave_barrier() {
    if (live && arrived == live) {
      arrived = 0;
      generation++;
    }
  }
};

inline void yield_to_scheduler() { swapcontext(&self->context, &self->block->cluster->scheduler); }

template <class Condition>
void wait_until(const char* what, Condition&& condition) {
  if (condition()) return;
  self->waits_for = what;
  self->ready = std::ref(condition);
  yield_to_scheduler();
  self->ready = nullptr;
}

// All 32 lanes meet; the last to come runs `run(T* lanes[32])` for all of them.
template <class T, class Run>
void collective(const char* name, T& mine, Run&& run) {
  Warp& warp = *self->warp;
  if (warp.arrived == 0)
    warp.operation = name;
  else if (warp.operation != name)
    throw Failure(std::string("lanes of a warp are at ") + warp.operation + " and at " + name);
  warp.lanes[self->lane] = &mine;
  if (++warp.arrived == kWarp) {
    warp.arrived = 0;
    warp.generation++;
    run(reinterpret_cast<T**>(warp.lanes));
    return;
  }
  const unsigned before = warp.generation;
  wait_until(name, [&] { return warp.generation != before; });
}

// `bytes` of the shared memory of a block of this cluster.
inline uint8_t* shared_at(uint32_t address, size_t bytes, size_t alignment = 1) {
  Cluster& cluster = *self->block->cluster;
  const uint32_t rank = address >> kOffsetBits, offset = address & ((1u << kOffsetBits) - 1);
  if (rank >= cluster.blocks.size()) throw Failure("an address of a block that is not in the cluster");
  Block& block = *cluster.blocks[rank];
  if (offset + bytes > block.shared_bytes) throw Failure("an address past the end of shared memory: " + std::to_string(offset));
  if (offset % alignment) throw Failure("a misaligned address of shared memory: " + std::to_string(offset));
  if (!block.live) throw Failure("the shared memory of a block that has ended");
  return block.shared + offset;
}
inline uint32_t shared_address(const void* p) {
  return (uint32_t)(static_cast<const uint8_t*>(p) - self->block->shared) | (uint32_t)self->block->rank << kOffsetBits;
}

inline Mbarrier& mbarrier_at(uint32_t address) {
  shared_at(address, 8, 8);
  auto& table = self->block->cluster->blocks[address >> kOffsetBits]->mbarriers;
  const auto found = table.find(address & ((1u << kOffsetBits) - 1));
  if (found == table.end()) throw Failure("an mbarrier that was not initialised");
  return found->second;
}
inline void mbarrier_arrive(uint32_t address, long bytes = 0) {
  Mbarrier& barrier = mbarrier_at(address);
  if (barrier.pending == 0) throw Failure("one arrival too many at an mbarrier");
  barrier.bytes += bytes;
  barrier.pending--;
  barrier.check();
}

// Happens at some time; may not touch `self`, which is whoever runs then. `bar` counts the bytes.
inline void later(std::function<void()> copy, uint32_t bar, long bytes) {
  Mbarrier* barrier = &mbarrier_at(bar);
  Cluster& cluster = *self->block->cluster;
  auto happen = [=] {
    copy();
    barrier->bytes -= bytes;
    barrier->check();
  };
  cluster.in_flight.push_back({happen, cluster.soon_or_late()});
}

inline void fiber_main() {
  Cluster& cluster = *self->block->cluster;
  try {
    cluster.kernel();
  } catch (const std::exception& error) {
    if (cluster.error.empty()) cluster.error = error.what();
  }
  self->done = true;
  self->block->live--;
  cluster.live--;
  if (self->cluster_arrivals > cluster.generation) cluster.arrived--;  // it no longer counts
  cluster.leave_barrier();
  yield_to_scheduler();
}

class Stacks {
 public:
  explicit Stacks(size_t n) : bytes_(n * kStack) {
    base_ = static_cast<uint8_t*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) throw Failure("no memory for the stacks of the fibers");
  }
  ~Stacks() { munmap(base_, bytes_); }
  uint8_t* operator[](size_t i) const { return base_ + i * kStack; }

 private:
  size_t bytes_;
  uint8_t* base_;
};

inline std::string deadlock(const Cluster& cluster) {
  std::map<std::string, int> waits;
  for (const auto& fiber : cluster.fibers)
    if (!fiber->done)
      waits["block " + std::to_string(fiber->block->rank) + " warp " + std::to_string(fiber->thread.x / kWarp) + " at " + fiber->waits_for]++;
  std::string text = "deadlock:";
  for (const auto& [where, threads] : waits) text += " " + std::to_string(threads) + " threads of " + where + ";";
  return text;
}

// Resumes whoever can run, in an order of warps that changes every round, until all have ended.
inline bool run_events(Cluster& cluster) {
  bool any = false;
  for (size_t i = 0; i < cluster.in_flight.size();) {
    if (cluster.in_flight[i].when > cluster.round) {
      i++;
      continue;
    }
    any = true;
    std::swap(cluster.in_flight[i], cluster.in_flight.back());
    const Event event = std::move(cluster.in_flight.back());
    cluster.in_flight.pop_back();
    event.happen();
  }
  return any;
}

// Resumes the lanes of a warp that can run.
inline bool run_warp(Cluster& cluster, size_t warp) {
  bool any = false;
  for (size_t i = warp * kWarp; i < (warp + 1) * kWarp && cluster.error.empty(); i++) {
    self = cluster.fibers[i].get();
    if (self->done || (self->ready && !self->ready())) continue;
    any = true;
    swapcontext(&cluster.scheduler, &cluster.fibers[i]->context);
  }
  return any;
}

// Until all threads have ended, or nothing can happen any more.
inline void schedule(Cluster& cluster) {
  std::vector<size_t> order(cluster.warps.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::vector<long> asleep(order.size(), 0);
  for (long& until : asleep)
    if (cluster.chance(16)) until = cluster.soon_or_late();   // a late start
  for (; cluster.live && cluster.error.empty(); cluster.round++) {
    bool any = run_events(cluster), sleeping = false;
    std::shuffle(order.begin(), order.end(), cluster.random);
    for (const size_t warp : order) {
      if (asleep[warp] > cluster.round) {
        sleeping = true;
        continue;
      }
      any |= run_warp(cluster, warp);
      if (cluster.chance(256)) asleep[warp] = cluster.soon_or_late();
    }
    if (!any && !sleeping && cluster.in_flight.empty() && cluster.live) cluster.error = deadlock(cluster);
  }
}

// Runs the blocks (x, y, z) for x < blocks as one cluster. Throws Failure.
inline void run_cluster(std::function<void()> kernel, int blocks, unsigned y, unsigned z, int threads, size_t shared_bytes, unsigned seed) {
  Cluster cluster;
  cluster.random.seed(seed);
  cluster.kernel = std::move(kernel);
  cluster.live = blocks * threads;
  const Stacks stacks(cluster.live);
  for (int rank = 0; rank < blocks; rank++) {
    auto block = std::make_unique<Block>();
    block->cluster = &cluster;
    block->index = {(unsigned)rank, y, z};
    block->rank = rank;
    block->live = threads;
    block->shared_bytes = shared_bytes;
    block->storage.reset(new uint8_t[shared_bytes + 1024]);
    block->shared = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(block->storage.get()) + 1023) & ~uintptr_t{1023});
    std::memset(block->shared, 0xFF, shared_bytes);  // NaN in every format
    for (int t = 0; t < threads; t++) {
      if (t % kWarp == 0) cluster.warps.push_back(std::make_unique<Warp>());
      auto fiber = std::make_unique<Fiber>();
      fiber->block = block.get();
      fiber->warp = cluster.warps.back().get();
      fiber->thread = {(unsigned)t, 0, 0};
      fiber->lane = t % kWarp;
      getcontext(&fiber->context);
      fiber->context.uc_stack = {stacks[cluster.fibers.size()], 0, kStack};
      fiber->context.uc_link = nullptr;
      makecontext(&fiber->context, fiber_main, 0);
      cluster.fibers.push_back(std::move(fiber));
    }
    cluster.blocks.push_back(std::move(block));
  }
  schedule(cluster);
  if (!cluster.error.empty()) throw Failure(cluster.error);
}

}  // namespace machine
