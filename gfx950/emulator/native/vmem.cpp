// Vector memory instructions: from registers to an operation in flight.
#include <algorithm>

#include "memory.hpp"
#include "vector.hpp"

namespace emu {
namespace {

Layout layout_of(const MemoryOp& op) {
  int next = 0;
  Layout at;
  if (op.segment == Segment::Buffer) {
    if (op.access != Access::LoadLds) at.data = at.dst = next++;
    at.address = next++, at.base = next++, at.offset = next++;
    return at;
  }
  if (op.landing != Landing::None) at.dst = next++;
  at.address = next++;
  if (op.access == Access::Store || op.access == Access::Atomic) at.data = next++;
  if (op.segment != Segment::Flat) at.base = next++;
  return at;
}

Pending& begin(Wave& w, const MemoryOp& op) {
  PendingKind kind = op.access == Access::LoadLds      ? PendingKind::LdsDma
                     : op.landing != Landing::None ? PendingKind::VectorLoad
                                                   : PendingKind::VectorStore;
  Pending& p = issue_vector_memory(w, kind, w.inst);
  p.bytes = op.bytes;
  p.sign = op.sign;
  p.mask = p.access = w.exec;
  return p;
}

void set_destination(Wave& w, const Inst& i, const MemoryOp& op, const Layout& at, Pending& p) {
  p.landing = op.landing, p.first = i.operands[at.dst].index, p.words = op.words;
  for (int k = 0; k < p.words; k++)
    if (w.vstate[p.first + k] & kInFlight && !only_vector_memory(w, p.first + k)) report_in_flight(w, true, p.first + k, p.mask, true);
  mark_vector_destination(w, p);
}

void issue_load(Wave& w, const Inst& i, const MemoryOp& op, const Layout& at, Pending& p) {
  p.performed = false;
  flush_overlapping(w, p);
  if (!w.launch->config.late_loads) perform(w, p);
  set_destination(w, i, op, at, p);
}

void issue_store(Wave& w, const Inst& i, const MemoryOp& op, const Layout& at, Pending& p) {
  p.is_store = true;
  fetch_store_data(w, i, op, at.data, p);
  p.performed = false;
  if (!w.launch->config.posted_stores) perform(w, p);
}

void issue(Wave& w, const Inst& i, const Layout& at, Pending& p) {
  const MemoryOp& op = i.memory;
  switch (op.access) {
    case Access::Load: return issue_load(w, i, op, at, p);
    case Access::Store: return issue_store(w, i, op, at, p);
    case Access::LoadLds: return start_lds_dma(w, i, op, p);
    case Access::Atomic:
      run_atomic(w, i, op, at, p);
      if (op.landing != Landing::None) set_destination(w, i, op, at, p);
  }
}

void run_global(Wave& w, const Inst& i) {
  Layout at = layout_of(i.memory);
  Pending& p = begin(w, i.memory);
  global_addresses(w, i, at, p);
  issue(w, i, at, p);
}

void run_buffer(Wave& w, const Inst& i) {
  Layout at = layout_of(i.memory);
  Pending& p = begin(w, i.memory);
  buffer_addresses(w, i, at, p);
  issue(w, i, at, p);
}

void run_scratch(Wave& w, const Inst& i) {
  const MemoryOp& op = i.memory;
  Layout at = layout_of(op);
  Pending& p = begin(w, op);
  alignas(64) uint32_t offsets[kLanes];
  scratch_offsets(w, i, at, p.mask, offsets);
  p.is_store = op.access == Access::Store;
  if (p.is_store) fetch_private_data(w, i, op, at.data, p);
  access_scratch(w, offsets, p.mask, p);
  if (!p.is_store) set_destination(w, i, op, at, p);
}

// A generic address may mean LDS or memory, so both counters count, and only zero of both is sure.
void run_flat(Wave& w, const Inst& i) {
  const MemoryOp& op = i.memory;
  Layout at = layout_of(op);
  Pending& p = begin(w, op);
  global_addresses(w, i, at, p);
  uint64_t windows = generic_windows(p);
  if (windows == 0) {
    issue(w, i, at, p);
  } else {
    run_windows(w, i, op, at, p, windows);
  }
  Pending& ghost = issue_lgkm(w, PendingKind::Flat, w.inst);
  ghost.mask = p.mask, ghost.first = p.first, ghost.words = p.landing == Landing::None ? 0 : p.words;
  mark_vector_destination(w, ghost);
}

void cache_control(Wave& w, const Inst&) {  // vmcnt counts these too
  Pending& p = issue_vector_memory(w, PendingKind::VectorStore, w.inst);
  p.mask = p.access = 0;
}

}  // namespace

Handler find_memory(Inst& i, const std::string& name) {
  if (name == "buffer_wbl2" || name == "buffer_inv") return cache_control;
  auto op = parse_memory_op(name, i.flags & kLds, i.flags & kSc0);
  if (!op || i.flags & kTfe) return nullptr;
  i.memory = *op;
  switch (op->segment) {
    case Segment::Global: return run_global;
    case Segment::Flat: return run_flat;
    case Segment::Scratch: return run_scratch;
    case Segment::Buffer: return run_buffer;
  }
  return nullptr;
}

}  // namespace emu
