// Memory operations in flight: what s_waitcnt waits for.
//
// A load's result reaches its registers when a wait covers it, not before; until then the registers are "in flight". With
// `late` sampling even the memory is read only then; a posted store leaves only then. Both are the slowest that hardware may
// legally be, so that a missing wait shows.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "arith/arith.hpp"
#include "memory_op.hpp"

namespace emu {

struct Wave;

constexpr int kMaxDataWords = 16;  // s_load_dwordx16

enum class PendingKind : uint8_t { VectorLoad, VectorStore, LdsDma, Lds, Scalar, Flat };

struct Pending {
  PendingKind kind;
  Landing landing;
  bool performed;      // the memory was accessed
  bool is_store, has_shadow;
  uint8_t words;       // destination registers
  uint8_t bytes;       // per lane, in memory
  uint8_t lds_bytes;   // per lane, in LDS
  uint8_t lds_accesses;  // address sets that touch LDS (1, or 2 for read2/write2)
  bool sign;
  uint16_t first;      // destination register
  int32_t inst;
  uint64_t mask;        // lanes that take part
  uint64_t access;      // lanes that touch memory; the others of `mask` read 0 (buffer range checks)
  alignas(64) uint64_t address[arith::kLanes];
  alignas(64) uint32_t lds_address[2][arith::kLanes];
  alignas(64) arith::Lanes data[4];
  alignas(64) arith::Lanes shadow[4];
  uint32_t scalar[kMaxDataWords];
};

// First in, first out, of at most `capacity` operations (the hardware's counter: issuing more stalls).
class Queue {
 public:
  explicit Queue(int capacity) : slots_(capacity), capacity_(capacity) {}
  int size() const { return count_; }
  bool full() const { return count_ == capacity_ - 1; }  // a 6-bit counter holds 63
  Pending& push() {
    auto& slot = slots_[(head_ + count_++) % capacity_];
    if (!slot) slot = std::make_unique<Pending>();
    return *slot;
  }
  Pending& at(int index) { return *slots_[(head_ + index) % capacity_]; }
  void pop() { head_ = (head_ + 1) % capacity_, count_--; }
  void erase(int index) {
    for (; index > 0; index--) slots_[(head_ + index) % capacity_].swap(slots_[(head_ + index - 1) % capacity_]);
    pop();
  }

 private:
  std::vector<std::unique_ptr<Pending>> slots_;
  int capacity_, head_ = 0, count_ = 0;
};

Pending& issue_vector_memory(Wave&, PendingKind, int32_t inst);  // stalls when vmcnt is at its limit
Pending& issue_lgkm(Wave&, PendingKind, int32_t inst);
void mark_vector_destination(Wave&, const Pending&);
void mark_scalar_destination(Wave&, const Pending&);

void wait_vector_memory(Wave&, int count);
void wait_lgkm(Wave&, int count);
void finish_pending(Wave&);           // s_endpgm
bool has_posted_stores(Wave&);        // some store is not visible to other waves yet
void retag_lds_in_flight(Wave&);      // at a barrier: what has not been waited for goes on after it
bool in_flight(Wave&, bool vector, int index, uint64_t mask, int& inst);  // which operation holds a register

// A load or atomic of the same wave sees its own earlier stores: performs those that may overlap, and whatever is older.
void flush_overlapping(Wave&, const Pending&);
// Operations of one counter return in order, so a second one may target the same register: true if all that is in flight
// towards a vector register is counted by vmcnt, or by lgkmcnt.
bool only_vector_memory(Wave&, int index);
bool only_lds(Wave&, int index);

void perform(Wave&, Pending&);  // access the memory now (global.cpp)

}  // namespace emu
