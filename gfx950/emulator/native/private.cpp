// Scratch (private memory, one segment a lane) and generic addresses that turn out to mean scratch or LDS.
#include "memory.hpp"

namespace emu {
namespace {

// Bytes and shadow bytes of one lane's access.
struct Place {
  uint8_t *data = nullptr, *shadow = nullptr;
};

Place scratch_place(Wave& w, uint32_t offset, int lane, int bytes) {
  uint32_t size = w.launch->config.scratch_bytes;
  if (uint64_t(offset) + bytes > size) {
    report(w, {.kind = FindingKind::ScratchOutOfBounds, .lane = lane, .detail = bytes, .address = offset});
    return {};
  }
  size_t at = size_t(lane) * size + offset;
  return {w.scratch.data() + at, w.scratch_shadow.data() + at};
}

Place lds_place(Wave& w, uint32_t offset, int lane, int bytes, bool write) {
  Lds& lds = w.group->lds;
  if (uint64_t(offset) + bytes > lds.size()) {
    report(w, {.kind = FindingKind::LdsOutOfBounds, .lane = lane, .detail = bytes, .address = offset});
    return {};
  }
  write ? lds.note_write(w, offset, bytes, lane) : lds.note_read(w, offset, bytes, lane);
  return {&lds.data[offset], &lds.shadow[offset]};
}

void move_lane(Pending& p, int lane, Place place) {
  if (!place.data) {
    p.has_shadow = true;
    for (auto& word : p.shadow) word[lane] = ~0u;
  } else if (p.is_store) {
    take_lane(p.data, lane, place.data, p.bytes);
    take_lane(p.shadow, lane, place.shadow, p.bytes);
  } else {
    put_lane(p.data, lane, place.data, p.bytes, p.sign);
    put_lane(p.shadow, lane, place.shadow, p.bytes, true);
  }
}

bool is_lds(uint64_t address) { return address >> 32 == kSharedAperture; }
bool is_private(uint64_t address) { return address >> 32 == kPrivateAperture; }

}  // namespace

void access_scratch(Wave& w, const uint32_t* offsets, uint64_t mask, Pending& p) {
  p.has_shadow = true;
  for (int l = 0; l < kLanes; l++)
    if (mask >> l & 1) move_lane(p, l, scratch_place(w, offsets[l], l, p.bytes));
}

uint64_t generic_windows(const Pending& p) {
  uint64_t lanes = 0;
  for (int l = 0; l < kLanes; l++) lanes |= uint64_t(is_lds(p.address[l]) || is_private(p.address[l])) << l;
  return lanes & p.access;
}

void run_windows(Wave& w, const Inst& i, const MemoryOp& op, const Layout& at, Pending& p, uint64_t lanes) {
  if (op.access == Access::Atomic) report(w, {.kind = FindingKind::Unsupported, .detail = 2001, .fatal = true});
  p.is_store = op.access == Access::Store;
  p.has_shadow = true;
  if (p.is_store) {
    fetch_private_data(w, i, op, at.data, p);
  } else {
    memset(p.shadow, 0, sizeof p.shadow);
  }
  for (int l = 0; l < kLanes; l++) {
    if (!(lanes >> l & 1)) continue;
    uint32_t offset = uint32_t(p.address[l]);
    move_lane(p, l, is_lds(p.address[l]) ? lds_place(w, offset, l, p.bytes, p.is_store) : scratch_place(w, offset, l, p.bytes));
  }
  p.access &= ~lanes;
  if (p.access) perform(w, p);
  if (p.is_store) return;
  p.landing = op.landing, p.first = i.operands[at.dst].index, p.words = op.words;
  mark_vector_destination(w, p);
}

}  // namespace emu
