// LDS atomics, append and consume, and the count of bank conflicts.
#include <algorithm>
#include <cstring>

#include "ds.hpp"

namespace emu {
namespace {

uint64_t lane_value(const Lanes* words, int lane, int bytes) {
  return words[0][lane] | (bytes == 8 ? uint64_t(words[1][lane]) << 32 : 0);
}

// LDS operands come as (first, second): compare-and-swap has (compare, new), the masked OR (mask, bits).
uint64_t apply(const AtomicOp& op, uint64_t old, uint64_t first, uint64_t second, bool swapped) {
  return swapped ? op.fn(old, second, first) : op.fn(old, first, second);
}

void fetch_data(Wave& w, const Inst& i, int operand, int words, uint64_t mask, Lanes* out) {
  VectorSource v;
  fetch_vector(w, i, operand, words, 0, mask, v);
  for (int k = 0; k < words; k++) {
    need_lanes(w, v, k, mask, FindingKind::PoisonStore);
    memcpy(out[k], v.value[k], sizeof(Lanes));
  }
}

// One lane after another, as the hardware serialises lanes that meet at an address.
void run_set(Wave& w, const Inst& i, Pending& p, int set, const Lanes* first, const Lanes* second) {
  const AtomicOp& op = i.memory.atomic;
  Lds& lds = w.group->lds;
  bool swapped = i.memory.swapped;
  int word = set * op.bytes / 4;
  for (uint64_t left = check_lds_bounds(w, p.lds_address[set], op.bytes, p.mask); left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    uint32_t address = p.lds_address[set][l];
    if (address % op.bytes) report(w, {.kind = FindingKind::Misaligned, .lane = l, .detail = op.bytes, .address = address});
    lds.note_write(w, address, op.bytes, l, Lds::kAtomic);
    uint64_t old = 0;
    memcpy(&old, &lds.data[address], op.bytes);
    put_lane(p.data + word, l, &lds.data[address], op.bytes, false);
    put_lane(p.shadow + word, l, &lds.shadow[address], op.bytes, false);
    uint64_t next = apply(op, old, lane_value(first, l, op.bytes), second ? lane_value(second, l, op.bytes) : 0, swapped);
    memcpy(&lds.data[address], &next, op.bytes);
    if (i.memory.exchange) memset(&lds.shadow[address], 0, op.bytes);
  }
  p.has_shadow = true;
  count_lds(w, p.lds_address[set], op.bytes, p.mask, true);
}

void run_lds_atomic(Wave& w, const Inst& i) {
  const MemoryOp& op = i.memory;
  bool returns = op.landing == Landing::Whole;
  int address = returns ? 1 : 0, sets = i.memory.pair ? 2 : 1;
  Pending& p = begin_lds(w, w.exec);
  p.bytes = p.lds_bytes = op.bytes, p.is_store = true, p.lds_accesses = uint8_t(sets);
  Lanes first[2], second[2];
  bool two = op.atomic.compare || i.memory.pair;
  fetch_data(w, i, address + 1, op.words, p.mask, first);
  if (two) fetch_data(w, i, address + 2, op.words, p.mask, second);
  for (int set = 0; set < sets; set++) {
    int32_t offset = i.memory.pair ? (set ? i.offset1 : i.offset) * op.bytes * i.memory.pair : i.offset;
    lds_addresses(w, i, address, offset, p.mask, p.lds_address[set]);
    run_set(w, i, p, set, i.memory.pair && set ? second : first, op.atomic.compare ? second : nullptr);
  }
  if (returns) set_lds_destination(w, p, i.operands[0], op.words * sets, Landing::Whole);
}

// ds_append / ds_consume: a counter at M0 + offset grows or shrinks by the number of active lanes; all get the old value.
template <int kSign> void run_append(Wave& w, const Inst& i) {
  Pending& p = begin_lds(w, w.exec);
  p.bytes = p.lds_bytes = 4, p.is_store = true, p.lds_accesses = 1;
  uint32_t address = (uint32_t(need(w, read_sgpr(w, kM0, 1), FindingKind::PoisonAddress)) & 0xffff) + uint32_t(i.offset);
  for (auto& a : p.lds_address[0]) a = address;
  if (check_lds_bounds(w, p.lds_address[0], 4, p.mask)) {
    Lds& lds = w.group->lds;
    lds.note_write(w, address, 4, first_lane(p.mask), Lds::kAtomic);
    uint32_t old, shadow;
    memcpy(&old, &lds.data[address], 4);
    memcpy(&shadow, &lds.shadow[address], 4);
    broadcast(p.data[0], old);
    broadcast(p.shadow[0], shadow);
    p.has_shadow = shadow != 0;
    old += uint32_t(kSign * __builtin_popcountll(p.mask));
    memcpy(&lds.data[address], &old, 4);
  }
  set_lds_destination(w, p, i.operands[0], 1, Landing::Whole);
}

}  // namespace

Handler find_lds_atomic_handler(Inst& i, const std::string& name) {
  if (name == "ds_append") return run_append<1>;
  if (name == "ds_consume") return run_append<-1>;
  if (!name.starts_with("ds_")) return nullptr;
  std::string suffix = name.substr(3);
  size_t rtn = suffix.find("_rtn");
  i.memory.landing = rtn == std::string::npos ? Landing::None : Landing::Whole;
  if (rtn != std::string::npos) suffix.erase(rtn, 4);
  if (suffix.starts_with("wrxchg2")) {
    bool st64 = suffix.starts_with("wrxchg2st64");
    i.memory.pair = st64 ? 64 : 1;
    suffix = "wrxchg" + suffix.substr(st64 ? 11 : 7);
  }
  auto atomic = find_lds_atomic(suffix);
  if (!atomic) return nullptr;
  i.memory.atomic = *atomic;
  i.memory.bytes = atomic->bytes;
  i.memory.words = uint8_t(atomic->bytes / 4);
  i.memory.swapped = suffix.starts_with("cmpst");
  i.memory.exchange = suffix.starts_with("wrxchg");
  return run_lds_atomic;
}

// 64 banks of 4 bytes: a pass serves as many lanes as fit into 256 bytes, and takes a cycle more for every further row of a
// bank that it needs.
void count_lds(Wave& w, const uint32_t* address, uint32_t bytes, uint64_t mask, bool write) {
  Counters& counters = w.launch->counters;
  (write ? counters.lds_write_bytes : counters.lds_read_bytes) += uint64_t(bytes) * __builtin_popcountll(mask);
  int lanes = bytes <= 4 ? 64 : 256 / (bytes == 12 ? 16 : bytes), words = std::max<int>(1, bytes / 4);
  for (int first = 0; first < kLanes; first += lanes) {
    uint32_t rows[64][4];  // distinct rows of each bank, the first few
    uint8_t depth[64] = {};
    int deepest = 0;
    for (int l = first; l < first + lanes; l++) {
      if (!(mask >> l & 1)) continue;
      for (int k = 0; k < words; k++) {
        uint32_t word = address[l] / 4 + k, bank = word & 63, known = std::min<int>(depth[bank], 4);
        bool seen = false;
        for (uint32_t r = 0; r < known; r++) seen |= rows[bank][r] == word;
        if (seen) continue;
        if (depth[bank] < 4) rows[bank][depth[bank]] = word;
        deepest = std::max<int>(deepest, ++depth[bank]);
      }
    }
    counters.lds_cycles += deepest;
    counters.lds_conflict_cycles += std::max(0, deepest - 1);
  }
}

}  // namespace emu
