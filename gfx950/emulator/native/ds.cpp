// LDS reads and writes.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ds.hpp"

namespace emu {

void lds_addresses(Wave& w, const Inst& i, int operand, int32_t offset, uint64_t mask, uint32_t* out) {
  VectorSource v;
  fetch_vector(w, i, operand, 1, 0, mask, v);
  need_lanes(w, v, 0, mask, FindingKind::PoisonAddress);
  for (int l = 0; l < kLanes; l++) out[l] = v.value[0][l] + uint32_t(offset);
}

uint64_t check_lds_bounds(Wave& w, const uint32_t* address, uint32_t bytes, uint64_t mask) {
  uint32_t size = w.group->lds.size();
  uint64_t inside = 0;
  for (int l = 0; l < kLanes; l++) inside |= uint64_t(uint64_t(address[l]) + bytes <= size) << l;
  if (uint64_t bad = mask & ~inside) [[unlikely]] {
    int l = first_lane(bad);
    report(w, {.kind = FindingKind::LdsOutOfBounds, .lane = l, .detail = bytes, .address = address[l]});
  }
  return mask & inside;
}

Pending& begin_lds(Wave& w, uint64_t mask) {
  Pending& p = issue_lgkm(w, PendingKind::Lds, w.inst);
  p.mask = p.access = mask;
  return p;
}

void set_lds_destination(Wave& w, Pending& p, const Operand& dst, int words, Landing landing) {
  p.landing = landing;
  p.first = dst.index;
  p.words = uint8_t(words);
  for (int k = 0; k < words; k++)
    if (w.vstate[p.first + k] & kInFlight && !only_lds(w, p.first + k)) report_in_flight(w, true, p.first + k, p.mask, true);
  mark_vector_destination(w, p);
}

namespace {

void read_shadow(Wave& w, Pending& p, int set, int word, uint64_t inside) {
  if (!std::exchange(p.has_shadow, true)) memset(p.shadow, 0, sizeof p.shadow);
  for (; inside; inside &= inside - 1) {
    int l = __builtin_ctzll(inside);
    put_lane(p.shadow + word, l, &w.group->lds.shadow[p.lds_address[set][l]], p.bytes, p.sign);
  }
}

bool any_set(const uint8_t* bytes, int count) {
  uint8_t any = 0;
  for (int b = 0; b < count; b++) any |= bytes[b];
  return any;
}

// Lanes outside LDS read 0, as on hardware.
void zero_lanes(Pending& p, int word, uint64_t lanes) {
  for (; lanes; lanes &= lanes - 1)
    for (int k = 0; k < std::max(1, p.bytes / 4); k++) p.data[word + k][__builtin_ctzll(lanes)] = 0;
}

// Reads each lane's bytes into data words `word`.. of the operation.
void read_set(Wave& w, Pending& p, int set, int word, uint64_t inside) {
  Lds& lds = w.group->lds;
  const uint32_t* address = p.lds_address[set];
  bool poisoned = false;
  for (uint64_t left = inside; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    lds.note_read(w, address[l], p.bytes, l);
    put_lane(p.data + word, l, &lds.data[address[l]], p.bytes, p.sign);
    poisoned |= any_set(&lds.shadow[address[l]], p.bytes);
  }
  zero_lanes(p, word, p.mask & ~inside);
  if (poisoned) read_shadow(w, p, set, word, inside);
  count_lds(w, address, p.bytes, inside, false);
}

void write_set(Wave& w, Pending& p, int set, int word, uint64_t inside) {
  Lds& lds = w.group->lds;
  const uint32_t* address = p.lds_address[set];
  for (uint64_t left = inside; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    uint8_t value[16], poison[16];
    take_lane(p.data + word, l, value, p.bytes);
    take_lane(p.shadow + word, l, poison, p.bytes);
    lds.write(w, address[l], value, poison, p.bytes, l);
  }
  count_lds(w, address, p.bytes, inside, true);
}

int32_t set_offset(const Inst& i, int set) {
  if (!i.memory.pair) return i.offset;
  return (set ? i.offset1 : i.offset) * i.memory.bytes * i.memory.pair;
}

void run_read(Wave& w, const Inst& i) {
  const MemoryOp& op = i.memory;
  Pending& p = begin_lds(w, w.exec);
  p.bytes = p.lds_bytes = op.bytes, p.sign = op.sign;
  int sets = i.memory.pair ? 2 : 1;
  p.lds_accesses = uint8_t(sets);
  for (int set = 0; set < sets; set++) {
    lds_addresses(w, i, 1, set_offset(i, set), p.mask, p.lds_address[set]);
    read_set(w, p, set, set * op.words, check_lds_bounds(w, p.lds_address[set], op.bytes, p.mask));
  }
  set_lds_destination(w, p, i.operands[0], op.words * sets, op.landing);
}

void run_write(Wave& w, const Inst& i) {
  const MemoryOp& op = i.memory;
  Pending& p = begin_lds(w, w.exec);
  p.bytes = p.lds_bytes = op.bytes, p.is_store = true;
  int sets = i.memory.pair ? 2 : 1;
  p.lds_accesses = uint8_t(sets);
  for (int set = 0; set < sets; set++) {
    lds_addresses(w, i, 0, set_offset(i, set), p.mask, p.lds_address[set]);
    fetch_private_data(w, i, op, 1 + set, p);
    if (!p.has_shadow) memset(p.shadow, 0, sizeof(Lanes) * op.words);
    write_set(w, p, set, 0, check_lds_bounds(w, p.lds_address[set], op.bytes, p.mask));
  }
}

// ds_read_addtid / ds_write_addtid: address = M0 + offset + 4 * lane.
template <bool kWrite> void run_add_thread_id(Wave& w, const Inst& i) {
  Pending& p = begin_lds(w, w.exec);
  p.bytes = p.lds_bytes = 4, p.lds_accesses = 1, p.is_store = kWrite;
  uint32_t base = uint32_t(need(w, read_sgpr(w, kM0, 1), FindingKind::PoisonAddress)) + uint32_t(i.offset);
  for (int l = 0; l < kLanes; l++) p.lds_address[0][l] = base + 4 * l;
  uint64_t inside = check_lds_bounds(w, p.lds_address[0], 4, p.mask);
  if (kWrite) {
    fetch_private_data(w, i, MemoryOp{}, 0, p);
    write_set(w, p, 0, 0, inside);
  } else {
    read_set(w, p, 0, 0, inside);
    set_lds_destination(w, p, i.operands[0], 1, Landing::Whole);
  }
}

struct Width {
  const char* name;
  uint8_t bytes;
  bool sign;
  Landing landing;
};
constexpr Width kWidths[] = {
    {"b32", 4, false, Landing::Whole}, {"b64", 8, false, Landing::Whole}, {"b96", 12, false, Landing::Whole},
    {"b128", 16, false, Landing::Whole}, {"u8", 1, false, Landing::Whole}, {"i8", 1, true, Landing::Whole},
    {"u16", 2, false, Landing::Whole}, {"i16", 2, true, Landing::Whole}, {"u8_d16", 1, false, Landing::Low16},
    {"u8_d16_hi", 1, false, Landing::High16}, {"i8_d16", 1, true, Landing::Low16}, {"i8_d16_hi", 1, true, Landing::High16},
    {"u16_d16", 2, false, Landing::Low16}, {"u16_d16_hi", 2, false, Landing::High16},
    {"b8", 1, false, Landing::None}, {"b16", 2, false, Landing::None}, {"b8_d16_hi", 1, false, Landing::None},
    {"b16_d16_hi", 2, false, Landing::None},
};

bool set_width(Inst& i, const std::string& name) {
  auto width = std::find_if(std::begin(kWidths), std::end(kWidths), [&](const Width& x) { return name == x.name; });
  if (width == std::end(kWidths)) return false;
  i.memory.bytes = width->bytes;
  i.memory.words = uint8_t(std::max(1, width->bytes / 4));
  i.memory.sign = width->sign;
  i.memory.landing = width->landing;
  i.memory.high_half = width->landing == Landing::None && name.ends_with("_hi");
  return true;
}

}  // namespace

Handler find_lds(Inst& i, const std::string& name) {
  if (name == "ds_read_addtid_b32") return run_add_thread_id<false>;
  if (name == "ds_write_addtid_b32") return run_add_thread_id<true>;
  if (Handler found = find_lds_exchange(name)) return found;
  if (Handler found = find_lds_transpose(name)) return found;
  struct Form { const char* prefix; uint8_t pair; Handler run; };
  constexpr Form forms[] = {{"ds_read2st64_", 64, run_read}, {"ds_read2_", 1, run_read}, {"ds_read_", 0, run_read},
                            {"ds_write2st64_", 64, run_write}, {"ds_write2_", 1, run_write}, {"ds_write_", 0, run_write}};
  for (const Form& form : forms)
    if (name.starts_with(form.prefix)) {
      i.memory.pair = form.pair;
      return set_width(i, name.substr(strlen(form.prefix))) ? form.run : nullptr;
    }
  return find_lds_atomic_handler(i, name);
}

}  // namespace emu
