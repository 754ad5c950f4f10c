// Scalar loads: s_load_*, s_buffer_load_*, s_memtime.
#include <algorithm>

#include "operands.hpp"

namespace emu {
namespace {

// The offset of a scalar load: an SGPR, an immediate, or both.
uint64_t scalar_offset(Wave& w, const Inst& i) {
  const Operand& o = i.operands[2];
  uint64_t offset = uint64_t(int64_t(i.offset));
  if (o.kind == OperandKind::Sgpr) return offset + uint32_t(need(w, read_scalar(w, i, 2, 1), FindingKind::PoisonAddress));
  return offset + uint64_t(int64_t(int32_t(o.value)));
}

void issue(Wave& w, const Inst& i, uint64_t address, uint32_t valid_words) {
  Pending& p = issue_lgkm(w, PendingKind::Scalar, w.inst);
  p.first = i.operands[0].index;
  p.words = i.operands[0].words;
  p.mask = p.access = 0;
  for (int k = 0; k < p.words; k++)
    if (w.sstate[p.first + k] & kInFlight) report_in_flight(w, false, p.first + k, ~0ull, true);
  std::fill_n(p.scalar, p.words, 0);
  uint32_t words = std::min<uint32_t>(valid_words, p.words);
  address &= ~3ull;
  if (words) {
    if (Buffer* buffer = w.launch->memory.find(address, 4 * words)) {
      memcpy(p.scalar, buffer->host + (address - buffer->base), 4 * words);
      for (uint32_t k = 0; k < words; k++) w.launch->memory.count_load(buffer, address + 4 * k, 4);
    } else {
      report(w, {.kind = FindingKind::OutOfBounds, .detail = 4 * int64_t(words), .address = address, .buffer = w.launch->memory.nearest(address)});
    }
  }
  mark_scalar_destination(w, p);
}

void load(Wave& w, const Inst& i) {
  issue(w, i, need(w, read_scalar(w, i, 1, 2), FindingKind::PoisonAddress) + scalar_offset(w, i), ~0u);
}

// Words past the end of the buffer read 0.
void buffer_load(Wave& w, const Inst& i) {
  int first = i.operands[1].index;
  uint64_t low = need(w, read_sgpr(w, first, 2), FindingKind::PoisonAddress);
  uint32_t records = uint32_t(need(w, read_sgpr(w, first + 2, 1), FindingKind::PoisonAddress));
  uint32_t stride = uint32_t(low >> 48) & 0x3fff;
  uint64_t size = stride ? uint64_t(records) * stride : records, offset = scalar_offset(w, i) & ~3ull;
  issue(w, i, (low & 0xffffffffffff) + offset, offset < size ? uint32_t(std::min<uint64_t>((size - offset) / 4, 16)) : 0);
}

void time(Wave& w, const Inst& i) {
  Pending& p = issue_lgkm(w, PendingKind::Scalar, w.inst);
  p.first = i.operands[0].index;
  p.words = 2;
  p.mask = p.access = 0;
  p.scalar[0] = uint32_t(w.launch->clock), p.scalar[1] = uint32_t(w.launch->clock >> 32);
  mark_scalar_destination(w, p);
}

}  // namespace

Handler find_scalar_memory(Inst&, const std::string& name) {
  if (name.starts_with("s_load_dword")) return load;
  if (name.starts_with("s_buffer_load_dword")) return buffer_load;
  if (name == "s_memtime" || name == "s_memrealtime") return time;
  return nullptr;
}

}  // namespace emu
