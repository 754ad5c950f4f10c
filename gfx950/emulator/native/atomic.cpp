// Atomics on global memory, and the functions that LDS atomics share with them.
#include <bit>
#include <map>

#include "memory.hpp"

namespace emu {
namespace {

using u64 = uint64_t;

template <typename T> T as(u64 x) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<T>(x);
  else return std::bit_cast<T>(uint32_t(x));
}
template <typename T> u64 bits(T x) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<u64>(x);
  else return std::bit_cast<uint32_t>(x);
}

template <typename T> u64 add(u64 o, u64 d, u64) { return bits<T>(as<T>(o) + as<T>(d)); }
template <typename T> u64 sub(u64 o, u64 d, u64) { return bits<T>(as<T>(o) - as<T>(d)); }
template <typename T> u64 rsub(u64 o, u64 d, u64) { return bits<T>(as<T>(d) - as<T>(o)); }
template <typename T> u64 min(u64 o, u64 d, u64) { return as<T>(d) < as<T>(o) ? bits<T>(as<T>(d)) : bits<T>(as<T>(o)); }
template <typename T> u64 max(u64 o, u64 d, u64) { return as<T>(d) > as<T>(o) ? bits<T>(as<T>(d)) : bits<T>(as<T>(o)); }
u64 and_(u64 o, u64 d, u64) { return o & d; }
u64 or_(u64 o, u64 d, u64) { return o | d; }
u64 xor_(u64 o, u64 d, u64) { return o ^ d; }
u64 swap(u64, u64 d, u64) { return d; }
u64 compare_swap(u64 o, u64 d, u64 c) { return o == c ? d : o; }
template <typename T> u64 compare_swap_float(u64 o, u64 d, u64 c) { return as<T>(o) == as<T>(c) ? d : o; }
u64 masked_or(u64 o, u64 mask, u64 d) { return (o & ~mask) | d; }
template <typename T> u64 increment(u64 o, u64 d, u64) { return T(o) >= T(d) ? 0 : T(o + 1); }
template <typename T> u64 decrement(u64 o, u64 d, u64) { return T(o) == 0 || T(o) > T(d) ? T(d) : T(o - 1); }
u64 wrap(u64 o, u64 d, u64 d2) { return uint32_t(o) >= uint32_t(d) ? uint32_t(o) - uint32_t(d) : uint32_t(o) + uint32_t(d2); }

uint16_t bf16_from(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if (x != x) return uint16_t(u >> 16 | 64);
  return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
uint16_t add_f16(uint16_t a, uint16_t b) { return std::bit_cast<uint16_t>(_Float16(std::bit_cast<_Float16>(a) + std::bit_cast<_Float16>(b))); }
uint16_t add_bf16(uint16_t a, uint16_t b) {
  return bf16_from(std::bit_cast<float>(uint32_t(a) << 16) + std::bit_cast<float>(uint32_t(b) << 16));
}
template <uint16_t (*kAdd)(uint16_t, uint16_t)> u64 packed(u64 o, u64 d, u64) {
  return kAdd(uint16_t(o), uint16_t(d)) | uint32_t(kAdd(uint16_t(o >> 16), uint16_t(d >> 16))) << 16;
}

template <typename U, typename S> std::map<std::string, AtomicFn> integer_functions() {
  return {{"swap", swap}, {"add", add<U>}, {"sub", sub<U>}, {"smin", min<S>}, {"umin", min<U>}, {"smax", max<S>},
          {"umax", max<U>}, {"and", and_}, {"or", or_}, {"xor", xor_}, {"inc", increment<U>}, {"dec", decrement<U>}};
}

std::map<std::string, AtomicOp> global_table() {
  std::map<std::string, AtomicOp> table = {
      {"cmpswap", {compare_swap, 4, true}}, {"cmpswap_x2", {compare_swap, 8, true}}, {"add_f32", {add<float>, 4}},
      {"add_f64", {add<double>, 8}}, {"min_f64", {min<double>, 8}}, {"max_f64", {max<double>, 8}},
      {"pk_add_f16", {packed<add_f16>, 4}}, {"pk_add_bf16", {packed<add_bf16>, 4}}};
  for (auto& [name, fn] : integer_functions<uint32_t, int32_t>()) table[name] = {fn, 4};
  for (auto& [name, fn] : integer_functions<uint64_t, int64_t>()) table[name + "_x2"] = {fn, 8};
  return table;
}

std::map<std::string, AtomicOp> lds_table() {
  std::map<std::string, AtomicOp> table = {
      {"cmpst_b32", {compare_swap, 4, true}}, {"cmpst_b64", {compare_swap, 8, true}},
      {"cmpst_f32", {compare_swap_float<float>, 4, true}}, {"cmpst_f64", {compare_swap_float<double>, 8, true}},
      {"wrxchg_b32", {swap, 4}}, {"wrxchg_b64", {swap, 8}}, {"mskor_b32", {masked_or, 4, true}}, {"mskor_b64", {masked_or, 8, true}},
      {"wrap_b32", {wrap, 4, true}}, {"add_f32", {add<float>, 4}}, {"min_f32", {min<float>, 4}}, {"max_f32", {max<float>, 4}},
      {"add_f64", {add<double>, 8}}, {"min_f64", {min<double>, 8}}, {"max_f64", {max<double>, 8}},
      {"pk_add_f16", {packed<add_f16>, 4}}, {"pk_add_bf16", {packed<add_bf16>, 4}},
      {"and_b32", {and_, 4}}, {"or_b32", {or_, 4}}, {"xor_b32", {xor_, 4}}, {"and_b64", {and_, 8}}, {"or_b64", {or_, 8}}, {"xor_b64", {xor_, 8}},
      {"min_i32", {min<int32_t>, 4}}, {"max_i32", {max<int32_t>, 4}}, {"min_i64", {min<int64_t>, 8}}, {"max_i64", {max<int64_t>, 8}},
      {"rsub_u32", {rsub<uint32_t>, 4}}, {"rsub_u64", {rsub<u64>, 8}}};
  for (const char* name : {"add", "sub", "inc", "dec", "min", "max"}) {
    std::string key = name[0] == 'm' ? std::string("u") + name : name;
    table[std::string(name) + "_u32"] = {integer_functions<uint32_t, int32_t>()[key], 4};
    table[std::string(name) + "_u64"] = {integer_functions<u64, int64_t>()[key], 8};
  }
  return table;
}

std::optional<AtomicOp> lookup(const std::map<std::string, AtomicOp>& table, const std::string& name) {
  auto found = table.find(name);
  return found == table.end() ? std::nullopt : std::optional(found->second);
}

u64 lane_value(const Lanes* words, int lane, int bytes) {
  return words[0][lane] | (bytes == 8 ? u64(words[1][lane]) << 32 : 0);
}

}  // namespace

std::optional<AtomicOp> find_global_atomic(const std::string& suffix) {
  static const auto table = global_table();
  return lookup(table, suffix);
}
std::optional<AtomicOp> find_lds_atomic(const std::string& suffix) {
  static const auto table = lds_table();
  return lookup(table, suffix);
}

// Device-scope: takes effect at once and in lane order, while earlier stores of the wave may still be on their way.
void run_atomic(Wave& w, const Inst& i, const MemoryOp& op, const Layout& at, Pending& p) {
  MemoryOp data = op;
  data.words = uint8_t(op.words * (op.atomic.compare ? 2 : 1));
  p.is_store = true;
  fetch_store_data(w, i, data, at.data, p);
  p.has_shadow = false;
  flush_overlapping(w, p);
  MemoryMap& memory = w.launch->memory;
  for (uint64_t left = p.access; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    Buffer* buffer = memory.find(p.address[l], op.bytes);
    if (!buffer || !buffer->writable || p.address[l] % op.bytes) {
      FindingKind kind = !buffer ? FindingKind::OutOfBounds : !buffer->writable ? FindingKind::ReadOnlyStore : FindingKind::Misaligned;
      report(w, {.kind = kind, .lane = l, .detail = -int64_t(op.bytes), .address = p.address[l], .buffer = memory.nearest(p.address[l])});
      continue;
    }
    memory.count_load(buffer, p.address[l], op.bytes);
    memory.count_store(buffer, p.address[l], op.bytes);
    uint8_t* host = buffer->host + (p.address[l] - buffer->base);
    u64 old = 0;
    memcpy(&old, host, op.bytes);
    u64 next = op.atomic.fn(old, lane_value(p.data, l, op.bytes), lane_value(p.data + op.words, l, op.bytes));
    memcpy(host, &next, op.bytes);
    put_lane(p.data, l, reinterpret_cast<uint8_t*>(&old), op.bytes, false);
  }
  p.is_store = false;
}

}  // namespace emu
