// Wait states that software must leave between dependent instructions, where hardware has no interlock.
//
// gfx950/hazards.py finds the pairs of instructions that have too few on some path; here it shows whether that path is
// taken. A wait state is an issued instruction, or a count of s_nop.
#pragma once
#include <cstdint>
#include <vector>

namespace emu {

struct Wave;
struct Inst;

struct HazardPair {  // shared with emulator/program.py
  int32_t producer, consumer;  // instruction indices
  int32_t needed;              // wait states
};

// Of one wave: when each producer was last issued, in wait states. 0: never.
struct HazardState {
  uint64_t now = 1;
  std::vector<uint64_t> issued;
};

void check_hazard_consumer(Wave&, const Inst&);
void note_hazard_producer(Wave&, const Inst&);

}  // namespace emu
