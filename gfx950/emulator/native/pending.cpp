#include <algorithm>

#include "operands.hpp"

namespace emu {

static void clear_vector(Wave& w, const Pending& p) {
  for (int r = p.first; r < p.first + p.words; r++)
    if (--w.vpending[r] == 0) w.vstate[r] &= ~kInFlight;
}

static void clear_scalar(Wave& w, const Pending& p) {
  for (int r = p.first; r < p.first + p.words; r++)
    if (--w.spending[r] == 0) w.sstate[r] &= ~kInFlight;
}

void mark_vector_destination(Wave& w, const Pending& p) {
  for (int r = p.first; r < p.first + p.words; r++) w.vpending[r]++, w.vstate[r] |= kInFlight;
}

void mark_scalar_destination(Wave& w, const Pending& p) {
  for (int r = p.first; r < p.first + p.words; r++) w.spending[r]++, w.sstate[r] |= kInFlight;
}

// d16 loads write one half of a register and leave the other.
static void merge_half(Wave& w, Pending& p) {
  uint32_t keep = p.landing == Landing::Low16 ? 0xffff0000u : 0x0000ffffu;
  int shift = p.landing == Landing::Low16 ? 0 : 16;
  for (int l = 0; l < kLanes; l++) {
    p.data[0][l] = (w.v[p.first][l] & keep) | (p.data[0][l] & 0xffff) << shift;
    uint32_t loaded = p.has_shadow ? p.shadow[0][l] & 0xffff : 0;
    p.shadow[0][l] = (w.shadow[p.first][l] & keep) | loaded << shift;
  }
  p.has_shadow = true;
}

static void deliver_vector(Wave& w, Pending& p) {
  clear_vector(w, p);
  if (p.landing == Landing::None) return;
  if (p.landing != Landing::Whole) merge_half(w, p);
  // Another load to the same register may still be in flight (loads return in order), so this is not reported.
  uint8_t saved[4];
  for (int k = 0; k < p.words; k++) saved[k] = w.vstate[p.first + k] & kInFlight, w.vstate[p.first + k] &= ~kInFlight;
  write_vector(w, p.first, p.words, p.data, p.has_shadow ? p.shadow : nullptr, p.mask);
  for (int k = 0; k < p.words; k++) w.vstate[p.first + k] |= saved[k];
}

static void deliver_scalar(Wave& w, Pending& p) {
  clear_scalar(w, p);
  for (int k = 0; k < p.words; k++) w.s[p.first + k] = p.scalar[k], w.sshadow[p.first + k] = 0;
}

static void retag(Wave& w, const Pending& p) {
  uint32_t flags = p.kind == PendingKind::LdsDma ? Lds::kInFlightDma : 0;
  for (int set = 0; set < p.lds_accesses; set++)
    for (int l = 0; l < kLanes; l++)
      if (p.mask >> l & 1)
        w.group->lds.retag(w, p.lds_address[set][l], p.lds_bytes, p.is_store || p.kind == PendingKind::LdsDma, flags, p.inst);
}

static void complete(Wave& w, Pending& p) {
  if (!p.performed) perform(w, p);
  switch (p.kind) {
    case PendingKind::VectorLoad:
    case PendingKind::Lds: deliver_vector(w, p); break;
    case PendingKind::Scalar: deliver_scalar(w, p); break;
    case PendingKind::LdsDma:
      for (int l = 0; l < kLanes; l++)
        if (p.mask >> l & 1) w.group->lds.retag(w, p.lds_address[0][l], p.lds_bytes, true, 0, p.inst);
      break;
    case PendingKind::Flat: clear_vector(w, p); break;
    case PendingKind::VectorStore: break;
  }
}

static Pending& start(Queue& queue, PendingKind kind, int32_t inst) {
  Pending& p = queue.push();
  p.kind = kind;
  p.landing = Landing::None;
  p.performed = true;
  p.is_store = p.has_shadow = p.sign = false;
  p.words = p.bytes = p.lds_bytes = p.lds_accesses = 0;
  p.first = 0;
  p.inst = inst;
  return p;
}

Pending& issue_vector_memory(Wave& w, PendingKind kind, int32_t inst) {
  if (w.vm.full()) wait_vector_memory(w, w.vm.size() - 1);
  return start(w.vm, kind, inst);
}

Pending& issue_lgkm(Wave& w, PendingKind kind, int32_t inst) {
  if (w.lgkm.full()) wait_lgkm(w, w.lgkm.size() - 1);
  if (w.lgkm.full()) {  // all out of order: the stall lets some one of them complete
    complete(w, w.lgkm.at(0));
    w.lgkm.pop();
  }
  return start(w.lgkm, kind, inst);
}

void wait_vector_memory(Wave& w, int count) {
  while (w.vm.size() > count) {
    complete(w, w.vm.at(0));
    w.vm.pop();
  }
}

static bool out_of_order(const Pending& p) { return p.kind != PendingKind::Lds; }

// LDS operations return in order among themselves, scalar and flat ones in any order: with one of those outstanding, a
// count above zero says only how many LDS operations must be done if all the others came first.
void wait_lgkm(Wave& w, int count) {
  int ordered = 0;
  for (int k = 0; k < w.lgkm.size(); k++) ordered += !out_of_order(w.lgkm.at(k));
  for (int k = 0; k < w.lgkm.size();) {
    Pending& p = w.lgkm.at(k);
    bool done = out_of_order(p) ? count == 0 : ordered > count;
    if (!done) {
      k++;
      continue;
    }
    ordered -= !out_of_order(p);
    complete(w, p);
    w.lgkm.erase(k);
  }
}

void finish_pending(Wave& w) {
  wait_vector_memory(w, 0);
  wait_lgkm(w, 0);
}

void retag_lds_in_flight(Wave& w) {
  for (Queue* queue : {&w.vm, &w.lgkm})
    for (int k = 0; k < queue->size(); k++) retag(w, queue->at(k));
}

bool in_flight(Wave& w, bool vector, int index, uint64_t mask, int& inst) {
  for (Queue* queue : {&w.vm, &w.lgkm})
    for (int k = 0; k < queue->size(); k++) {
      Pending& p = queue->at(k);
      bool same_file = (p.kind == PendingKind::Scalar) != vector;
      bool hit = same_file && index >= p.first && index < p.first + p.words && (!vector || p.mask & mask);
      if (hit) return inst = p.inst, true;
    }
  return false;
}

static bool overlap(const Pending& a, const Pending& b) {
  uint64_t low_a = ~0ull, high_a = 0, low_b = ~0ull, high_b = 0;
  for (int l = 0; l < kLanes; l++) {
    if (a.access >> l & 1) low_a = std::min(low_a, a.address[l]), high_a = std::max(high_a, a.address[l] + a.bytes);
    if (b.access >> l & 1) low_b = std::min(low_b, b.address[l]), high_b = std::max(high_b, b.address[l] + b.bytes);
  }
  return low_a < high_b && low_b < high_a;
}

void flush_overlapping(Wave& w, const Pending& newer) {
  int last = -1;
  for (int k = 0; k < w.vm.size(); k++) {
    Pending& p = w.vm.at(k);
    if (p.is_store && !p.performed && overlap(p, newer)) last = k;
  }
  for (int k = 0; k <= last; k++)
    if (!w.vm.at(k).performed) perform(w, w.vm.at(k));
}

bool has_posted_stores(Wave& w) {
  for (int k = 0; k < w.vm.size(); k++)
    if (w.vm.at(k).is_store && !w.vm.at(k).performed) return true;
  return false;
}

static bool targets(Queue& queue, int index) {
  for (int k = 0; k < queue.size(); k++) {
    Pending& p = queue.at(k);
    if (p.kind != PendingKind::Scalar && index >= p.first && index < p.first + p.words) return true;
  }
  return false;
}

bool only_vector_memory(Wave& w, int index) { return !targets(w.lgkm, index); }
bool only_lds(Wave& w, int index) { return !targets(w.vm, index); }

}  // namespace emu
