// A decoded program: the records that gfx950/emulator/program.py packs, and what the executor derives from them once.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arith/arith.hpp"
#include "hazards.hpp"
#include "memory_op.hpp"

namespace emu {

struct Wave;
struct Inst;
using Handler = void (*)(Wave&, const Inst&);

// --- shared with program.py (struct formats there must match) ------------------------------------------------------------
enum class OperandKind : uint8_t { None, Vgpr, Sgpr, Int, Float, Literal, Off, Symbol };
enum OperandFlags : uint8_t { kNeg = 1, kAbs = 2, kSext = 4 };

struct Operand {
  OperandKind kind;
  uint8_t words;
  uint8_t flags;
  uint8_t pad;
  uint16_t index;  // registers: 0..511 vector, scalar as encoded
  uint16_t pad2;
  uint32_t value;
};
static_assert(sizeof(Operand) == 12);

enum InstFlags : uint32_t {
  kOffen = 1, kIdxen = 2, kLds = 4, kGds = 8, kSc0 = 16, kSc1 = 32, kNt = 64, kClamp = 128, kBoundCtrl = 256, kDpp = 512,
  kSdwa = 1024, kTfe = 2048,
};

constexpr int kMaxOperands = 6;
constexpr uint8_t kUndecoded = 255;  // operand_count of an instruction that the decoder did not understand

struct Record {
  uint64_t pc;
  uint32_t name;         // index into the table of base mnemonics
  uint32_t flags;        // InstFlags
  int32_t target;        // instruction index of a direct branch; -1 if none
  int32_t offset;        // memory offset, or ds offset0
  int32_t offset1;
  uint32_t word0;        // first encoding word: SOPP and SOPK fields
  uint16_t dpp_ctrl;
  uint8_t size;          // bytes
  uint8_t operand_count;
  uint8_t neg, neg_hi, op_sel, op_sel_hi;
  uint8_t omod, cbsz, abid, blgp, bitop3;
  uint8_t row_mask, bank_mask;
  uint8_t dst_sel, dst_unused, src_sel[2];
  uint8_t pad[5];
  Operand operands[kMaxOperands];
};
static_assert(sizeof(Record) == 56 + 12 * kMaxOperands);

// --- derived ------------------------------------------------------------------------------------------------------------
struct Inst : Record {
  Handler run = nullptr;
  const arith::Op* op = nullptr;
  const arith::Lanes* constant[kMaxOperands] = {};  // expanded constants, `words` Lanes each, per operand
  arith::Modifiers modifiers;
  uint8_t dst_count = 0;    // operands that are results
  uint8_t wait_states = 1;
  bool vector = false;      // VALU or vector memory: what VSKIP skips
  uint16_t hazard_consumer = 0, hazard_producer = 0;  // 0: none; else places in Program's tables
  int8_t lane_map[64];      // DPP: source lane or -1
  uint64_t dpp_enable = ~0ull;
  MemoryOp memory;
  uint64_t imm[kMaxOperands] = {};  // constants of scalar instructions
};

struct Program {
  std::vector<Inst> code;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<arith::Lanes[]>> constants;
  std::vector<uint8_t> unimplemented;  // per instruction
  uint64_t first_pc = 0;
  std::vector<int32_t> index_of_word;  // (pc - first_pc) / 4 -> instruction or -1

  std::vector<HazardPair> hazard_pairs;
  std::vector<std::vector<int32_t>> hazards_of;  // by Inst::hazard_consumer: indices of pairs
  int32_t producer_count = 0;

  int32_t index_of(uint64_t pc) const {
    uint64_t word = (pc - first_pc) / 4;
    return pc % 4 == 0 && pc >= first_pc && word < index_of_word.size() ? index_of_word[word] : -1;
  }
};

// Finds the handler of an instruction and prepares its constants; leaves `run` pointing at a fault if there is none.
void prepare(Program&, Inst&);

void add_hazards(Program&, const HazardPair*, uint64_t count);

// The handler for a mnemonic, or null. Some fill in the instruction's derived fields.
Handler find_scalar(const std::string& name);
Handler find_scalar_memory(Inst&, const std::string& name);
Handler find_vector(Inst&, const std::string& name);
Handler find_memory(Inst&, const std::string& name);
Handler find_lds(Inst&, const std::string& name);
void run_unimplemented(Wave&, const Inst&);
void run_off_the_end(Wave&, const Inst&);

}  // namespace emu
