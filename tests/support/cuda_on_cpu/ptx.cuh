// What kernels/cuda/ptx.cuh is on a GPU, here on machine.h. Layouts and semantics: PTX ISA 8.x, sections on mma, wgmma, ldmatrix, mbarrier.
#pragma once
#include <cmath>

#include "machine.h"

using machine::self;
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx (machine::self->thread)
#define blockIdx (machine::self->block->index)

struct float2 { float x, y; };
struct int2 { int x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { uint32_t x, y; };
struct __nv_bfloat16 { uint16_t bits; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
template <class A, class B> auto min(A a, B b) { using T = std::common_type_t<A, B>; return (T)a < (T)b ? (T)a : (T)b; }
template <class A, class B> auto max(A a, B b) { using T = std::common_type_t<A, B>; return (T)a > (T)b ? (T)a : (T)b; }
template <class To, class From> To bits_of(From from) { To to; static_assert(sizeof to == sizeof from); memcpy(&to, &from, sizeof to); return to; }

// ---- global memory and warp operations
template <class T> T __ldg(const T* p) { return *p; }
inline int load_now(const int* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> void __stcg(T* p, T x) { *p = x; }
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* p, unsigned x) { const unsigned old = *p; *p += x; return old; }
inline float __uint_as_float(uint32_t x) { return bits_of<float>(x); }
template <class T>
T __shfl_sync(unsigned, T x, int from) {
  struct Lane { T x; int from; } lane{x, from};
  machine::collective("shfl", lane, [](Lane** lanes) {
    T old[machine::kWarp];
    for (int i = 0; i < machine::kWarp; i++) old[i] = lanes[i]->x;
    for (int i = 0; i < machine::kWarp; i++) lanes[i]->x = old[lanes[i]->from & 31];
  });
  return lane.x;
}
template <class T> T __shfl_xor_sync(unsigned mask, T x, int bits) { return __shfl_sync(mask, x, self->lane ^ bits); }
inline uint32_t __reduce_max_sync(unsigned, uint32_t x) {
  machine::collective("redux", x, [](uint32_t** lanes) {
    uint32_t top = 0;
    for (int i = 0; i < machine::kWarp; i++) top = max(top, *lanes[i]);
    for (int i = 0; i < machine::kWarp; i++) *lanes[i] = top;
  });
  return x;
}
inline void __syncwarp() { int none = 0; machine::collective("syncwarp", none, [](int**) {}); }
inline uint32_t __vmaxu2(uint32_t a, uint32_t b) { return max(a & 0xffff, b & 0xffff) | max(a >> 16, b >> 16) << 16; }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t select) {   // without sign replication
  const uint64_t bytes = a | (uint64_t)b << 32;
  uint32_t r = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t nibble = select >> 4 * i & 15;
    if (nibble & 8) throw machine::Failure("prmt would replicate a sign");
    r |= (uint32_t)(bytes >> 8 * nibble & 255) << 8 * i;
  }
  return r;
}

// ---- shared memory
#define SHARED_MEMORY(name) uint8_t* name = machine::self->block->shared
inline uint32_t smem_u32(const void* p) { return machine::shared_address(p); }
inline uint32_t ld_shared_u8(uint32_t addr) { return *machine::shared_at(addr, 1); }
inline uint32_t ld_shared_u32(uint32_t addr) { uint32_t x; memcpy(&x, machine::shared_at(addr, 4, 4), 4); return x; }
inline void ld_shared(uint32_t (&x)[4], uint32_t addr) { memcpy(x, machine::shared_at(addr, 16, 16), 16); }
inline void st_shared_u8(uint32_t addr, uint32_t x) { *machine::shared_at(addr, 1) = (uint8_t)x; }
inline void st_shared(uint32_t addr, uint32_t x) { memcpy(machine::shared_at(addr, 4, 4), &x, 4); }
inline void st_shared(uint32_t addr, const uint32_t (&x)[4]) { memcpy(machine::shared_at(addr, 16, 16), x, 16); }
inline void fence_async_proxy() {}
template <int REGS> void give_registers() {}
template <int REGS> void take_registers() {}

// ---- mbarriers
inline void mbar_init(uint32_t bar, uint32_t count) {
  machine::shared_at(bar, 8, 8);
  machine::Mbarrier fresh;
  fresh.count = fresh.pending = (int)count;
  self->block->mbarriers[bar & 0xffffff] = fresh;
}
inline void mbar_init_fence() {}
inline void mbar_expect(uint32_t bar, uint32_t bytes) { machine::mbarrier_arrive(bar, bytes); }
inline void mbar_arrive(uint32_t bar) { machine::mbarrier_arrive(bar); }
inline void mbar_wait(uint32_t bar, uint32_t parity) {
  const machine::Mbarrier& barrier = machine::mbarrier_at(bar);
  machine::wait_until("mbarrier", [&] { return (barrier.phase & 1) != parity; });
}
inline void mbar_poll(uint32_t bar, uint32_t parity) { mbar_wait(bar, parity); }
inline void mbar_spin(uint32_t bar, uint32_t parity) { mbar_wait(bar, parity); }

// ---- bulk copies
struct CUtensorMap {
  const uint8_t* base;
  long rows;
  int row_bytes, box_bytes, box_rows, swizzle;   // swizzle 128 or 64
  long plane_bytes = 0, page_bytes = 0, pages = 1;   // of tma_4d
  int box_planes = 1;
};
inline uint32_t swizzled(uint32_t addr, int swizzle) { return addr ^ ((addr >> 7 & (swizzle == 128 ? 7 : 3)) << 4); }
inline void prefetch_map(const CUtensorMap*) {}
inline void tma_2d(uint32_t dst, const CUtensorMap* map, int x, int y, uint32_t bar) {
  machine::shared_at(dst, (size_t)map->box_bytes * map->box_rows, 128);
  const CUtensorMap m = *map;
  machine::later([=] {
    for (int r = 0; r < m.box_rows; r++)
      for (int c = 0; c < m.box_bytes; c++) {
        const long row = (long)y + r;
        const bool inside = row >= 0 && row < m.rows && x + c < m.row_bytes;
        *machine::shared_at(swizzled(dst + r * m.box_bytes + c, m.swizzle), 1) = inside ? m.base[row * m.row_bytes + x + c] : 0;
      }
  }, bar, (long)m.box_bytes * m.box_rows);
}
inline void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  if (bytes % 16 || reinterpret_cast<uintptr_t>(src) % 16) throw machine::Failure("a bulk copy that is not of 16-byte units");
  machine::shared_at(dst, bytes, 16);
  machine::later([=] { memcpy(machine::shared_at(dst, bytes), src, bytes); }, bar, bytes);
}
inline uint32_t cluster_addr(uint32_t addr, int rank) { return (addr & 0xffffff) | (uint32_t)rank << machine::kOffsetBits; }
inline void st_async(uint32_t addr, float2 v, uint32_t bar) {
  machine::later([=] { memcpy(machine::shared_at(addr, 8, 8), &v, 8); }, bar, 8);
}
inline void bulk_copy_to_cluster(uint32_t dst, uint32_t src, uint32_t bytes, uint32_t bar) {
  if (bytes % 16) throw machine::Failure("a bulk copy that is not of 16-byte units");
  machine::later([=] { memcpy(machine::shared_at(dst, bytes, 16), machine::shared_at(src, bytes, 16), bytes); }, bar, bytes);
}

// ---- barriers
// True for the last of `threads`, whose arrival completes the barrier.
inline bool bar_complete(machine::NamedBarrier& barrier, int threads, bool flag) {
  barrier.any |= flag;
  if (++barrier.arrived < threads) return false;
  barrier.result = barrier.any;
  barrier.arrived = 0;
  barrier.any = false;
  barrier.generation++;
  return true;
}
inline void bar_arrive(int id, int threads) { bar_complete(self->block->named[id], threads, false); }
inline bool bar_or(int id, int threads, bool flag) {
  machine::NamedBarrier& barrier = self->block->named[id];
  const unsigned before = barrier.generation;
  if (!bar_complete(barrier, threads, flag)) machine::wait_until("bar", [&] { return barrier.generation != before; });
  return barrier.result;
}
inline void bar_sync(int id, int threads) { bar_or(id, threads, false); }
inline void cluster_arrive() {
  machine::Cluster& cluster = *self->block->cluster;
  if (self->cluster_arrivals > cluster.generation) throw machine::Failure("a second arrival at the cluster barrier without a wait");
  self->cluster_arrivals = cluster.generation + 1;
  cluster.arrived++;
  cluster.leave_barrier();
}
inline void cluster_wait() {
  machine::Cluster& cluster = *self->block->cluster;
  machine::wait_until("cluster barrier", [&] { return cluster.generation >= self->cluster_arrivals; });
}

// ---- bits and conversions
inline uint64_t pack_u64(uint32_t low, uint32_t high) { return low | (uint64_t)high << 32; }
inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t select) { return __byte_perm(a, b, select); }
inline uint32_t or_and(uint32_t a, uint32_t b, uint32_t mask) { return a | (b & mask); }
inline float f16_to_f32(uint16_t x) { return (float)bits_of<_Float16>(x); }
inline uint16_t f32_to_f16(float x) { return bits_of<uint16_t>((_Float16)x); }
inline uint32_t pack_f16(float lo, float hi) { return f32_to_f16(lo) | (uint32_t)f32_to_f16(hi) << 16; }
inline float2 unpack_f16(uint32_t x) { return {f16_to_f32((uint16_t)x), f16_to_f32((uint16_t)(x >> 16))}; }
inline uint32_t sub_f16x2(uint32_t a, uint32_t b) {
  const float2 x = unpack_f16(a), y = unpack_f16(b);
  return pack_f16(x.x - y.x, x.y - y.y);
}
inline uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  const float2 x = unpack_f16(a), y = unpack_f16(b);
  return pack_f16(x.x * y.x, x.y * y.y);
}
inline uint32_t f32_to_bf16(float x) {
  const uint32_t u = bits_of<uint32_t>(x);
  return std::isnan(x) ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
inline uint32_t pack_bf16(float lo, float hi) { return f32_to_bf16(lo) | f32_to_bf16(hi) << 16; }
inline float e4m3_to_f32(uint8_t x) {
  const int e = x >> 3 & 15, m = x & 7;
  const float v = (x & 127) == 127 ? NAN : e ? std::ldexp(8 + m, e - 10) : std::ldexp(m, -9);
  return x & 128 ? -v : v;
}
inline float bf16_to_f32(uint16_t x) { return bits_of<float>((uint32_t)x << 16); }
inline float e5m2_to_f32(uint8_t x) { return f16_to_f32((uint16_t)(x << 8)); }
inline uint8_t f32_to_e4m3(float x) {   // to nearest even, saturating
  const uint8_t sign = std::signbit(x) ? 128 : 0;
  const float a = std::fabs(x);
  if (std::isnan(x)) return 127;
  if (a >= 448) return sign | 126;
  const int e = a < 0x1p-6f ? -6 : std::ilogb(a);
  const int units = (int)std::nearbyint(std::ldexp(a, 3 - e));   // 8 .. 16 for normal numbers
  return sign | (uint8_t)(units + ((e + 6) << 3));
}
inline uint32_t e4m3x2_to_f16x2(uint16_t x) { return pack_f16(e4m3_to_f32((uint8_t)x), e4m3_to_f32((uint8_t)(x >> 8))); }
inline void e4m3x4_to_f16(uint32_t& lo, uint32_t& hi, uint32_t x) {
  lo = e4m3x2_to_f16x2((uint16_t)x);
  hi = e4m3x2_to_f16x2((uint16_t)(x >> 16));
}
inline uint16_t f16x2_to_e4m3x2(uint32_t x) {
  const float2 v = unpack_f16(x);
  return (uint16_t)(f32_to_e4m3(v.x) | f32_to_e4m3(v.y) << 8);
}
inline float exp2_approx(float x) { const float r = std::exp2(x); return std::fabs(r) < 0x1p-126f ? 0.f : r; }
inline float rcp_approx(float x) { return 1 / x; }

// ---- matrix instructions
// The byte (row, k) of a K-major operand: the descriptor holds start, bytes from eight rows to the next, and the swizzle (1: 128 B, 2: 64 B).
inline uint8_t operand_byte(uint64_t descriptor, int row, int k) {
  const int swizzle = descriptor >> 62 == 1 ? 128 : 64;
  const uint32_t start = (uint32_t)(descriptor & 0x3FFF) << 4, stride = (uint32_t)(descriptor >> 32 & 0x3FFF) << 4;
  const uint32_t offset = swizzled(start + row / 8 * stride + row % 8 * swizzle + k, swizzle);
  return *machine::shared_at(offset | (uint32_t)self->block->rank << machine::kOffsetBits, 1);
}
// Element (row, i) of an operand of 32 bytes a row.
inline float operand_value(uint64_t descriptor, machine::Format format, int row, int i) {
  using machine::Format;
  if (format == Format::bf16)
    return bf16_to_f32((uint16_t)(operand_byte(descriptor, row, 2 * i) | operand_byte(descriptor, row, 2 * i + 1) << 8));
  const uint8_t x = operand_byte(descriptor, row, i);
  return format == Format::e5m2 ? e5m2_to_f32(x) : e4m3_to_f32(x);
}
// Element (row, k) of a warp's 16 rows of 32 bytes in registers: rows lane / 4 and lane / 4 + 8, four bytes in a row of k, then those 16 later.
inline float register_value(machine::Fiber** lanes, size_t wgmma, int row, int k) {
  const machine::Fiber& owner = *lanes[row % 8 * 4 + k % 16 / 4];
  return e5m2_to_f32((uint8_t)(owner.wgmmas[wgmma].registers[row / 8 + k / 16 * 2] >> 8 * (k % 4)));
}
// This warp's 16 rows of D[64, columns], for all of its lanes: 16 columns of bf16, 32 of 8-bit formats.
inline void run_wgmma(machine::Fiber** lanes, size_t n) {
  using machine::Format;
  const int first_row = (int)(lanes[0]->thread.x / 32 % 4) * 16;
  const machine::Wgmma& w = lanes[0]->wgmmas[n];
  const bool bf16 = w.format == Format::bf16;
  const int depth = bf16 ? 16 : 32, columns = bf16 ? 16 : 32;
  float a[16][32], b[32][32];
  for (int k = 0; k < depth; k++) {
    for (int r = 0; r < 16; r++) a[r][k] = w.a_in_registers ? register_value(lanes, n, r, k) : operand_value(w.a, w.format, first_row + r, k);
    for (int c = 0; c < columns; c++) b[c][k] = operand_value(w.b, bf16 ? Format::bf16 : Format::e4m3, c, k);
  }
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < columns / 2; i++) {
      const int row = lane / 4 + (i >> 1 & 1) * 8, column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
      float& d = lanes[lane]->wgmma_sums.at(lanes[lane]->wgmmas[n].d)[i];
      double sum = w.accumulate ? d : 0;
      for (int k = 0; k < depth; k++) sum += (double)a[row][k] * b[column][k];
      d = (float)sum;
    }
}
// The first `count` of what has been issued, if they have not run yet.
inline void run_wgmmas(machine::Fiber** lanes, size_t count) {
  for (size_t n = lanes[0]->wgmmas_run; n < count; n++) run_wgmma(lanes, n);
  for (int lane = 0; lane < 32; lane++) lanes[lane]->wgmmas_run = std::max(lanes[lane]->wgmmas_run, count);
}
inline void wgmma_fence() {}
template <int N>
void issue_wgmma(float (&d)[N], uint64_t a, uint64_t b, int accumulate, machine::Format format) {
  if (self->wgmma_sums.emplace(d, std::array<float, 16>{}).second) std::copy(d, d + N, self->wgmma_sums[d].begin());
  self->wgmmas.push_back({a, b, accumulate != 0, format, d});
  for (float& x : d) x = NAN;   // not to be read before the wait
}
inline void wgmma_e4m3(float (&d)[16], uint64_t a, uint64_t b, int accumulate) { issue_wgmma(d, a, b, accumulate, machine::Format::e4m3); }
inline void wgmma_e5m2(float (&d)[16], uint64_t a, uint64_t b, int accumulate) { issue_wgmma(d, a, b, accumulate, machine::Format::e5m2); }
inline void wgmma_e5m2(float (&d)[16], const uint32_t (&a)[4], uint64_t b, int accumulate) {
  issue_wgmma(d, 0, b, accumulate, machine::Format::e5m2);
  self->wgmmas.back().a_in_registers = true;
  memcpy(self->wgmmas.back().registers, a, sizeof a);
}
inline void wgmma_bf16(float (&d)[8], uint64_t a, uint64_t b, int accumulate) { issue_wgmma(d, a, b, accumulate, machine::Format::bf16); }
inline void wgmma_commit() {   // at once, or as late as the wait
  machine::collective("wgmma commit", *self, [](machine::Fiber** lanes) {
    for (int lane = 0; lane < 32; lane++) lanes[lane]->wgmma_groups.push_back(lanes[lane]->wgmmas.size());
    if (self->block->cluster->chance(2)) run_wgmmas(lanes, lanes[0]->wgmmas.size());
  });
}
// All but the last `open` groups have run then. What later ones add to stays NaN.
inline void wait_for_wgmmas(size_t open) {
  machine::collective("wgmma wait", *self, [open](machine::Fiber** lanes) {
    const std::vector<size_t>& groups = lanes[0]->wgmma_groups;
    if (groups.size() > open) run_wgmmas(lanes, groups[groups.size() - 1 - open]);
  });
  if (open) return;
  self->wgmmas.clear();
  self->wgmma_groups.clear();
  self->wgmmas_run = 0;
}
template <int N>
void take_sums(float (&d)[N]) {
  if (std::any_of(self->wgmmas.begin() + self->wgmmas_run, self->wgmmas.end(), [&](const machine::Wgmma& w) { return w.d == d; }))
    throw machine::Failure("accumulators of a wgmma that has not been waited for");
  std::copy_n(self->wgmma_sums.at(d).begin(), N, d);
  self->wgmma_sums.erase(d);
}
template <int GROUPS = 0>
void wgmma_wait(float (&d)[16]) {
  wait_for_wgmmas(GROUPS);
  take_sums(d);
}
inline void wgmma_wait(float (&d)[8]) {
  wait_for_wgmmas(0);
  take_sums(d);
}
template <int GROUPS> void wgmma_wait_for_registers() {}
inline float2 unpack_bf16(uint32_t x) { return {bf16_to_f32((uint16_t)x), bf16_to_f32((uint16_t)(x >> 16))}; }
template <float2 unpack(uint32_t)>
void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Lane { float* d; const uint32_t* a; uint32_t b[2]; } mine{d, a, {b0, b1}};
  machine::collective("mma", mine, [](Lane** lanes) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++)
      for (int h = 0; h < 2; h++) {
        const int row = lane / 4, k = lane % 4 * 2 + h * 8;
        for (int half = 0; half < 2; half++) {
          const float2 x = unpack(lanes[lane]->a[2 * h + half]);
          a[row + 8 * half][k] = x.x;
          a[row + 8 * half][k + 1] = x.y;
        }
        const float2 y = unpack(lanes[lane]->b[h]);
        b[k][row] = y.x;
        b[k + 1][row] = y.y;
      }
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + (i >> 1) * 8, column = lane % 4 * 2 + (i & 1);
        float sum = lanes[lane]->d[i];
        for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
        lanes[lane]->d[i] = sum;
      }
  });
}
inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { mma<unpack_f16>(d, a, b0, b1); }
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { mma<unpack_bf16>(d, a, b0, b1); }
// Four 8 x 8 matrices of 16-bit elements: lane 8 i + r holds the address of row r of matrix i. `element(lane, i, half)` is (row, column).
template <bool TRANSPOSED>
inline void matrix_place(int lane, int half, int& row, int& column) {
  row = TRANSPOSED ? lane % 4 * 2 + half : lane / 4;
  column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + half;
}
template <bool TRANSPOSED, bool STORE>
inline void move_matrices(const char* name, uint32_t (&r)[4], uint32_t addr) {
  struct Lane { uint32_t* r; uint32_t addr; } mine{r, addr};
  machine::collective(name, mine, [](Lane** lanes) {
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        for (int half = 0; half < 2; half++) {
          int row, column;
          matrix_place<TRANSPOSED>(lane, half, row, column);
          uint8_t* element = machine::shared_at(lanes[8 * i + row]->addr, 16, 16) + column * 2;
          uint8_t* place = reinterpret_cast<uint8_t*>(&lanes[lane]->r[i]) + half * 2;
          memcpy(STORE ? element : place, STORE ? place : element, 2);
        }
  });
}
inline void ldmatrix4(uint32_t (&r)[4], uint32_t addr) { move_matrices<false, false>("ldmatrix", r, addr); }
inline void ldmatrix4_trans(uint32_t (&r)[4], uint32_t addr) { move_matrices<true, false>("ldmatrix.trans", r, addr); }
inline void stmatrix4_trans(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  uint32_t r[4] = {a, b, c, d};
  move_matrices<true, true>("stmatrix.trans", r, addr);
}

// ---- for kernels/nvfp4_msa/cuda
// `swizzle` 0: none.
inline void tma_4d(uint32_t dst, const CUtensorMap* map, int x, int y, int z, int w, uint32_t bar) {
  const CUtensorMap m = *map;
  const long bytes = (long)m.box_bytes * m.box_rows * m.box_planes;
  machine::shared_at(dst, bytes, 128);
  machine::later([=] {
    for (long i = 0; i < bytes; i++) {
      const long column = x + i % m.box_bytes, row = y + i / m.box_bytes % m.box_rows, plane = z + i / m.box_bytes / m.box_rows;
      const bool inside = row >= 0 && row < m.rows && column < m.row_bytes && plane < m.page_bytes / m.plane_bytes && w >= 0 && w < m.pages;
      const uint32_t to = m.swizzle ? swizzled(dst + (uint32_t)i, m.swizzle) : dst + (uint32_t)i;
      *machine::shared_at(to, 1) = inside ? m.base[w * m.page_bytes + plane * m.plane_bytes + row * m.row_bytes + column] : 0;
    }
  }, bar, bytes);
}
struct alignas(16) uint4 { uint32_t x, y, z, w; };
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline uint32_t __ballot_sync(unsigned, bool x) {
  uint32_t all = x;
  machine::collective("ballot", all, [](uint32_t** lanes) {
    uint32_t bits = 0;
    for (int i = 0; i < machine::kWarp; i++) bits |= *lanes[i] << i;
    for (int i = 0; i < machine::kWarp; i++) *lanes[i] = bits;
  });
  return all;
}
inline bool __any_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) != 0; }
inline uint32_t ld_shared_u16(uint32_t addr) { uint16_t x; memcpy(&x, machine::shared_at(addr, 2, 2), 2); return x; }
inline uint32_t select_bits(uint32_t a, uint32_t b, uint32_t mask) { return (a & mask) | (b & ~mask); }
inline uint32_t low_twice(uint32_t x) { return (x & 0xffff) * 0x10001u; }
inline uint32_t high_twice(uint32_t x) { return (x >> 16) * 0x10001u; }
inline uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  const float2 x = unpack_f16(a), y = unpack_f16(b), z = unpack_f16(c);
  return pack_f16(x.x * y.x + z.x, x.y * y.y + z.y);
}
inline uint32_t transpose_8x8(uint32_t x) {
  machine::collective("movmatrix", x, [](uint32_t** lanes) {
    uint16_t old[8][8];
    for (int lane = 0; lane < machine::kWarp; lane++) memcpy(&old[lane / 4][lane % 4 * 2], lanes[lane], 4);
    for (int lane = 0; lane < machine::kWarp; lane++)
      for (int half = 0; half < 2; half++) memcpy(reinterpret_cast<uint16_t*>(lanes[lane]) + half, &old[lane % 4 * 2 + half][lane / 4], 2);
  });
  return x;
}
inline void prefetch_l2(const void*) {}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
inline void keep(uint32_t&) {}
inline void st_async(uint32_t addr, const uint32_t (&x)[4], uint32_t bar) {
  const std::array<uint32_t, 4> kept = {x[0], x[1], x[2], x[3]};
  machine::later([=] { memcpy(machine::shared_at(addr, 16, 16), kept.data(), 16); }, bar, 16);
}
inline float log2_approx(float x) { return std::log2(x); }
inline void ld_shared(uint32_t (&x)[2], uint32_t addr) { memcpy(x, machine::shared_at(addr, 8, 8), 8); }
