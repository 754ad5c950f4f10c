// What a memory instruction does, read off its name once.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace emu {

enum class Segment : uint8_t { Global, Flat, Scratch, Buffer };
enum class Access : uint8_t { Load, Store, Atomic, LoadLds };
enum class Landing : uint8_t { None, Whole, Low16, High16 };  // which part of the destination a load writes

// old -> new on one lane's bytes (a dword or a qword); `compare` only for compare-and-swap.
using AtomicFn = uint64_t (*)(uint64_t old, uint64_t data, uint64_t compare);
struct AtomicOp {
  AtomicFn fn = nullptr;
  uint8_t bytes = 4;
  bool compare = false;
};
// By the suffix of the mnemonic: "add", "cmpswap_x2", "pk_add_f16" (global); "add_u32", "cmpst_b64" (LDS).
std::optional<AtomicOp> find_global_atomic(const std::string& suffix);
std::optional<AtomicOp> find_lds_atomic(const std::string& suffix);

struct MemoryOp {
  Segment segment = Segment::Global;
  Access access = Access::Load;
  uint8_t bytes = 4;  // per lane, in memory
  uint8_t words = 1;  // registers of data
  bool sign = false;
  Landing landing = Landing::Whole;
  bool high_half = false;  // a store that takes its register's high half
  uint8_t pair = 0;        // LDS: two accesses, offsets counted in elements times this (1, or 64 for st64)
  bool exchange = false;   // LDS atomic that leaves nothing of the old value
  bool swapped = false;    // LDS compare-and-swap: the comparand comes first
  AtomicOp atomic{};
};
// global_*, flat_*, scratch_*, buffer_*; `lds` and `returns` are the modifiers lds and sc0.
std::optional<MemoryOp> parse_memory_op(std::string name, bool lds, bool returns);

}  // namespace emu
