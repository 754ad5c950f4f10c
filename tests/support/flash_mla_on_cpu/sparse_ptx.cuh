// What kernels/flash_mla/cuda/sparse_ptx.cuh is on a GPU, here on machine.h: warpgroup products of which several groups are in flight, and
// 16-byte copies that an mbarrier counts.
#pragma once
#include <deque>

#include "ptx.cuh"

inline uint32_t __float_as_uint(float x) { return bits_of<uint32_t>(x); }
inline void ld_global(uint32_t& x, const void* p) { memcpy(&x, p, 4); }
inline void ld_global(uint32_t (&x)[4], const void* p) {
  if (reinterpret_cast<uintptr_t>(p) % 16) throw machine::Failure("a misaligned 16-byte load");
  memcpy(x, p, 16);
}
inline void st_global(void* p, const uint32_t (&x)[4]) {
  if (reinterpret_cast<uintptr_t>(p) % 16) throw machine::Failure("a misaligned 16-byte store");
  memcpy(p, x, 16);
}
inline float ld_shared_f32(uint32_t addr) {
  float x;
  memcpy(&x, machine::shared_at(addr, 4, 4), 4);
  return x;
}
inline void ld_shared_pair(uint32_t (&x)[2], uint32_t addr) { memcpy(x, machine::shared_at(addr, 8, 8), 8); }
inline void st_shared_pair(uint32_t addr, const uint32_t (&x)[2]) { memcpy(machine::shared_at(addr, 8, 8), x, 8); }
inline void launch_dependents() {}
inline void await_dependencies() {}

// What a thread has in flight besides machine.h's.
struct Product {
  float* d;
  int columns;
  bool bf16, a_in_registers, accumulate;
  uint32_t a_registers[4];
  uint64_t a, b;
};
struct Group {
  std::vector<Product> products;
  bool ran = false;
};
struct InFlight {
  std::shared_ptr<int> copies = std::make_shared<int>(0);
  std::vector<Product> open;                             // not committed
  std::deque<Group> groups;
  std::map<float*, std::vector<float>> values;           // of accumulators that belong to the tensor cores
};
inline std::map<machine::Fiber*, InFlight> in_flight;    // cleared before every launch
inline InFlight& mine() { return in_flight[self]; }

// ---- copies
inline void copy_16(uint32_t dst, const void* src) {
  if (reinterpret_cast<uintptr_t>(src) % 16) throw machine::Failure("a misaligned 16-byte copy");
  machine::Cluster& cluster = *self->block->cluster;
  uint8_t* to = machine::shared_at(dst, 16, 16);
  const auto copies = mine().copies;
  ++*copies;
  cluster.in_flight.push_back({[=] { memcpy(to, src, 16); --*copies; }, cluster.soon_or_late()});
}
// Retries until this thread's earlier copies have happened; later ones count in a counter of their own.
inline void arrive_later(machine::Cluster& cluster, std::shared_ptr<int> copies, machine::Mbarrier* barrier) {
  const auto happen = [&cluster, copies, barrier] {
    if (*copies) return arrive_later(cluster, copies, barrier);
    if (barrier->pending == 0) throw machine::Failure("one arrival too many at an mbarrier");
    barrier->pending--;
    barrier->check();
  };
  cluster.in_flight.push_back({happen, cluster.round + 1 + (long)cluster.random() % 8});
}
inline void arrive_when_copied(uint32_t bar) {
  arrive_later(*self->block->cluster, mine().copies, &machine::mbarrier_at(bar));
  mine().copies = std::make_shared<int>(0);
}

// ---- warpgroup products
inline float half_value(bool bf16, uint16_t x) { return bf16 ? bf16_to_f32(x) : f16_to_f32(x); }
inline const uint8_t* operand_chunk(uint32_t offset) {   // 16 bytes, of a 128-byte swizzle
  return machine::shared_at(swizzled(offset, 128) | (uint32_t)self->block->rank << machine::kOffsetBits, 16, 16);
}
struct Descriptor {                                      // bytes
  uint32_t start, leading, stride;
  explicit Descriptor(uint64_t x) : start((x & 0x3FFF) << 4), leading((x >> 16 & 0x3FFF) << 4), stride((x >> 32 & 0x3FFF) << 4) {
    if (x >> 62 != 1) throw machine::Failure("an operand that has no 128-byte swizzle");
  }
};
// m[row][k] of `rows` rows from `first`, k < 16: rows 128 bytes apart, eight of them `stride` from the next eight.
inline void read_k_major(float (*m)[16], Descriptor d, bool bf16, int first, int rows) {
  for (int r = 0; r < rows; r++)
    for (int k = 0; k < 16; k += 8) {
      uint16_t x[8];
      memcpy(x, operand_chunk(d.start + (first + r) / 8 * d.stride + (first + r) % 8 * 128 + k * 2), 16);
      for (int i = 0; i < 8; i++) m[r][k + i] = half_value(bf16, x[i]);
    }
}
// m[column][k]: 64 columns are contiguous, the next 64 `leading` further; every k is 128 bytes on, eight of them `stride`.
inline void read_transposed(float (*m)[16], Descriptor d, bool bf16, int columns) {
  for (int k = 0; k < 16; k++)
    for (int c = 0; c < columns; c += 8) {
      uint16_t x[8];
      memcpy(x, operand_chunk(d.start + c / 64 * d.leading + k / 8 * d.stride + k % 8 * 128 + c % 64 * 2), 16);
      for (int i = 0; i < 8; i++) m[c + i][k] = half_value(bf16, x[i]);
    }
}
// Where accumulator i of a lane lies in the warp's 16 rows.
inline int accumulator_row(int lane, int i) { return lane / 4 + (i >> 1 & 1) * 8; }
inline int accumulator_column(int lane, int i) { return i / 4 * 8 + lane % 4 * 2 + (i & 1); }

// One product for the 16 rows of a warp.
inline void run_product(InFlight** lanes, size_t group, size_t index, int warp) {
  const auto of = [&](int lane) -> const Product& { return lanes[lane]->groups[group].products[index]; };
  const Product& p = of(0);
  float a[16][16];
  static thread_local float b[256][16];
  if (p.a_in_registers) {
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        for (int odd = 0; odd < 2; odd++)
          a[lane / 4 + (i & 1) * 8][(i >> 1) * 8 + lane % 4 * 2 + odd] = half_value(p.bf16, (uint16_t)(of(lane).a_registers[i] >> 16 * odd));
    read_transposed(b, Descriptor(p.b), p.bf16, p.columns);
  } else {
    read_k_major(a, Descriptor(p.a), p.bf16, warp * 16, 16);
    read_k_major(b, Descriptor(p.b), p.bf16, 0, p.columns);
  }
  for (int lane = 0; lane < 32; lane++) {
    std::vector<float>& d = lanes[lane]->values.at(of(lane).d);
    for (int i = 0; i < p.columns / 2; i++) {
      const float *x = a[accumulator_row(lane, i)], *y = b[accumulator_column(lane, i)];
      float sum = p.accumulate ? d[i] : 0;
      for (int k = 0; k < 16; k++) sum += x[k] * y[k];
      d[i] = sum;
    }
  }
}
// The first `count` groups, those that have not run yet, in their order.
inline void run_groups(InFlight** lanes, size_t count, int warp) {
  for (size_t g = 0; g < count; g++) {
    if (lanes[0]->groups[g].ran) continue;
    for (size_t i = 0; i < lanes[0]->groups[g].products.size(); i++) run_product(lanes, g, i, warp);
    for (int lane = 0; lane < 32; lane++) lanes[lane]->groups[g].ran = true;
  }
}

template <int N>
void issue_product(float (&d)[N], Product p) {
  p.d = d;
  p.columns = 2 * N;
  InFlight& m = mine();
  if (!m.values.count(d)) m.values[d].assign(d, d + N);
  for (float& x : d) x = NAN;                            // not to be read before the wait
  m.open.push_back(p);
}
inline void wgmma_f16(float (&d)[32], uint64_t a, uint64_t b, int accumulate) { issue_product(d, {nullptr, 0, false, false, accumulate != 0, {}, a, b}); }
inline void wgmma_bf16(float (&d)[32], uint64_t a, uint64_t b, int accumulate) { issue_product(d, {nullptr, 0, true, false, accumulate != 0, {}, a, b}); }
inline void wgmma_f16(float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
  issue_product(d, {nullptr, 0, false, true, true, {a[0], a[1], a[2], a[3]}, 0, b});
}
inline void commit_products() {   // they run at once, or as late as the wait
  InFlight& m = mine();
  m.groups.push_back({std::move(m.open)});
  m.open.clear();
  const int warp = (int)(self->thread.x / 32 % 4);
  machine::collective("wgmma commit", m, [warp](InFlight** lanes) {
    if (self->block->cluster->chance(2)) run_groups(lanes, lanes[0]->groups.size(), warp);
  });
}
template <int PENDING, int N>
void wgmma_wait(float (&)[N]) {
  InFlight& m = mine();
  const int warp = (int)(self->thread.x / 32 % 4);
  machine::collective("wgmma wait", m, [warp](InFlight** lanes) {
    const size_t groups = lanes[0]->groups.size();
    if (groups > PENDING) run_groups(lanes, groups - PENDING, warp);
  });
  while (m.groups.size() > PENDING) m.groups.pop_front();
  for (auto found = m.values.begin(); found != m.values.end();) {
    bool pending = false;
    for (const Group& group : m.groups)
      for (const Product& p : group.products) pending |= p.d == found->first;
    if (!pending) std::copy(found->second.begin(), found->second.end(), found->first);
    found = pending ? std::next(found) : m.values.erase(found);
  }
}
#define wgmma_commit commit_products                     // of this file's products, not ptx.cuh's
