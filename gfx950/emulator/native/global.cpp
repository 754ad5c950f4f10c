// Global memory: loads, stores and LDS-DMA once their addresses are known.
#include <algorithm>

#include "arith/assumptions.hpp"
#include "memory.hpp"

namespace emu {

namespace {

Buffer* checked(Wave& w, const Pending& p, int lane, bool write) {
  uint64_t address = p.address[lane];
  MemoryMap& memory = w.launch->memory;
  Buffer* buffer = memory.find(address, p.bytes);
  if (buffer && (!write || buffer->writable)) return buffer;
  int saved = w.inst;
  w.inst = p.inst;
  int nearest = buffer ? memory.index_of(buffer) : memory.nearest(address);
  report(w, {.kind = buffer ? FindingKind::ReadOnlyStore : FindingKind::OutOfBounds, .lane = lane,
             .detail = write ? -int64_t(p.bytes) : p.bytes, .address = address, .buffer = nearest});
  w.inst = saved;
  return nullptr;
}

// Calls f(lane, host pointer) for every lane that accesses memory; `poisoned` collects those out of bounds.
template <typename F> uint64_t each_lane(Wave& w, const Pending& p, bool write, F f) {
  uint64_t failed = 0;
  MemoryMap& memory = w.launch->memory;
  for (uint64_t left = p.access; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    Buffer* buffer = checked(w, p, l, write);
    if (!buffer) {
      failed |= 1ull << l;
      continue;
    }
    write ? memory.count_store(buffer, p.address[l], p.bytes) : memory.count_load(buffer, p.address[l], p.bytes);
    f(l, buffer->host + (p.address[l] - buffer->base));
  }
  return failed;
}

void perform_load(Wave& w, Pending& p) {
  uint64_t failed = each_lane(w, p, false, [&](int l, uint8_t* host) { put_lane(p.data, l, host, p.bytes, p.sign); });
  if (!failed) return;
  p.has_shadow = true;
  for (auto& word : p.shadow)
    for (int l = 0; l < kLanes; l++) word[l] = failed >> l & 1 ? ~0u : 0;
}

void perform_store(Wave& w, Pending& p) {
  each_lane(w, p, true, [&](int l, uint8_t* host) { take_lane(p.data, l, host, p.bytes); });
}

void perform_dma(Wave& w, Pending& p) {
  Lds& lds = w.group->lds;
  int width = std::max<int>(p.bytes, 4);  // bytes and shorts arrive extended to a dword
  auto land = [&](int l, const uint8_t* from) {
    memcpy(&lds.data[p.lds_address[0][l]], from, width);
    memset(&lds.shadow[p.lds_address[0][l]], 0, width);
  };
  each_lane(w, p, false, [&](int l, uint8_t* host) {
    if (p.bytes >= 4) return land(l, host);
    put_lane(p.data, l, host, p.bytes, p.sign);
    land(l, reinterpret_cast<const uint8_t*>(&p.data[0][l]));
  });
  const uint8_t zeros[16] = {};
  for (int l = 0; l < kLanes; l++)
    if ((p.mask & ~p.access) >> l & 1) land(l, zeros);  // outside the buffer's range
}

}  // namespace

void perform(Wave& w, Pending& p) {
  p.performed = true;
  switch (p.kind) {
    case PendingKind::VectorLoad: return perform_load(w, p);
    case PendingKind::VectorStore: return perform_store(w, p);
    case PendingKind::LdsDma: return perform_dma(w, p);
    default: return;
  }
}

void fetch_private_data(Wave& w, const Inst& i, const MemoryOp& op, int operand, Pending& p) {
  VectorSource v;
  fetch_vector(w, i, operand, op.words, 0, p.mask, v);
  int shift = op.high_half ? 16 : 0;
  p.has_shadow = v.shadow != nullptr;
  for (int k = 0; k < op.words; k++)
    for (int l = 0; l < kLanes; l++) {
      p.data[k][l] = v.value[k][l] >> shift;
      p.shadow[k][l] = v.shadow ? v.shadow[k][l] >> shift : 0;
    }
}

void fetch_store_data(Wave& w, const Inst& i, const MemoryOp& op, int operand, Pending& p) {
  fetch_private_data(w, i, op, operand, p);
  if (!p.has_shadow) [[likely]] return;
  uint32_t stored = op.bytes >= 4 ? ~0u : (1u << 8 * op.bytes) - 1;
  for (int k = 0; k < op.words; k++)
    for (int l = 0; l < kLanes; l++)
      if (p.access >> l & 1 && p.shadow[k][l] & stored) {
        report(w, {.kind = FindingKind::PoisonStore, .lane = l, .detail = i.operands[operand].index + k, .address = p.address[l]});
        return;
      }
}

// LDS address = M0 + instruction offset + lane * size (CDNA3 ISA, "Memory to LDS").
void start_lds_dma(Wave& w, const Inst& i, const MemoryOp& op, Pending& p) {
  Lds& lds = w.group->lds;
  uint32_t width = std::max<int>(op.bytes, 4);
  uint32_t first = (uint32_t(need(w, read_sgpr(w, kM0, 1), FindingKind::PoisonAddress)) & 0x3ffff) + uint32_t(i.offset);
  for (int l = 0; l < kLanes; l++) {
    uint32_t address = p.lds_address[0][l] = first + uint32_t(arith::holds(arith::kLdsDmaLanes) ? l : 63 - l) * width;
    if (!(p.mask >> l & 1)) continue;
    if (address + width > lds.size()) {
      report(w, {.kind = FindingKind::LdsOutOfBounds, .lane = l, .detail = width, .address = address});
      p.mask &= ~(1ull << l), p.access &= p.mask;
      continue;
    }
    lds.note_write(w, address, width, l, Lds::kInFlightDma);
    memset(&lds.shadow[address], 0xff, width);
  }
  p.lds_accesses = 1;
  p.lds_bytes = uint8_t(width);
  p.performed = false;
  w.launch->counters.lds_write_bytes += uint64_t(width) * __builtin_popcountll(p.mask);
  flush_overlapping(w, p);
  if (!w.launch->config.late_loads) perform(w, p);
}

}  // namespace emu
