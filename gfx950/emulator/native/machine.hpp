// The state of the emulated machine: waves, workgroups, a launch.
//
// Every register has a shadow of the same shape (bit set = that bit was never given a value, as in MemorySanitizer) and a
// state byte that says in one look whether the slow paths (poison, loads in flight) concern it at all.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "arith/arith.hpp"
#include "findings.hpp"
#include "hazards.hpp"
#include "lds.hpp"
#include "memory_map.hpp"
#include "pending.hpp"
#include "program.hpp"

namespace emu {

using arith::kLanes;
using arith::Lanes;

constexpr int kVgprs = 512, kSgprs = 256;
constexpr int kVcc = 106, kM0 = 124, kExec = 126, kScc = 253;
constexpr uint32_t kPoisonValue = 0x7fdeadff;  // NaN as binary32, as binary16 (high half) and, by its 0xff, as fp8

enum RegisterState : uint8_t { kPoisoned = 1, kInFlight = 2 };

enum GprIndexMode : uint8_t { kIndexSrc0 = 1, kIndexSrc1 = 2, kIndexSrc2 = 4, kIndexDst = 8 };

struct Launch;
struct Workgroup;

enum class WaveStatus : uint8_t { Ready, AtBarrier, Stalled, Done };

struct Wave {
  Lanes* v;       // [kVgprs]
  Lanes* shadow;  // [kVgprs]
  uint8_t vstate[kVgprs];
  uint8_t vpending[kVgprs];  // operations in flight towards a register
  uint32_t s[kSgprs];
  uint32_t sshadow[kSgprs];
  uint8_t sstate[kSgprs];
  uint8_t spending[kSgprs];
  uint64_t exec = 0;
  uint64_t populated = 0;  // lanes that are work-items of the workgroup
  bool scc = false, scc_poison = false;
  bool gpr_index_on = false;
  bool vskip = false;  // vector instructions are skipped
  int32_t pc = 0;  // index into the program
  int32_t inst = 0;  // the instruction being executed
  arith::Mode mode;
  uint32_t mode_register = 0;
  WaveStatus status = WaveStatus::Ready;
  int id = 0;  // within the workgroup
  Workgroup* group = nullptr;
  Launch* launch = nullptr;
  Queue vm{64}, lgkm{16};
  HazardState hazards;
  bool yield = false;    // s_sleep: let others run
  bool resumed = false;  // its memory operations have come back: the wait it stalled at is over
  uint64_t executed = 0;
  int32_t loop = -1;  // the last branch backwards
  std::vector<uint8_t> scratch;         // private segments, lane after lane
  std::vector<uint8_t> scratch_shadow;
  std::unique_ptr<uint32_t[]> storage;

  Wave();
  void reset(Launch&, Workgroup&, int id);
  uint64_t vcc() const { return s[kVcc] | uint64_t(s[kVcc + 1]) << 32; }
  uint8_t index_mode() const { return gpr_index_on ? s[kM0] >> 12 & 15 : 0; }
  void set_exec(uint64_t mask) {
    exec = mask;
    s[kExec] = uint32_t(mask);
    s[kExec + 1] = uint32_t(mask >> 32);
  }
};

// The latest shuffle that took a value from a lane that was switched off.
struct InactiveShuffle {
  int32_t inst = -1, wave, lane, from;
};

struct Workgroup {
  uint32_t id[3];
  uint32_t flat_id;
  std::vector<std::unique_ptr<Wave>> waves;
  Lds lds;
  InactiveShuffle inactive_shuffle;
  void reset(Launch&, uint32_t flat_id);
  int live = 0, waiting = 0;
};

enum class Order : uint32_t { RoundRobin, Reverse, Random, ToBarrier };

// --- shared with emulator/executor.py (ctypes structures there must match) -----------------------------------------------
struct LaunchConfig {
  uint32_t grid[3], block[3];
  uint32_t lds_bytes, scratch_bytes, vgpr_count, agpr_count;
  uint64_t entry_pc;
  uint64_t budget;           // instructions of one wave
  uint32_t order, quantum;
  uint64_t seed;
  uint32_t workgroups_in_flight;
  uint32_t lds_fill;         // byte
  uint32_t late_loads, posted_stores, instant, stalls;
  uint32_t strict;
  uint32_t mode_register;    // FP round and denormal bits, dx10_clamp, ieee as the MODE register has them
  uint32_t workitem_dims;
  int32_t group_id_sgpr[3];  // -1: not preloaded
  int32_t group_info_sgpr;
  uint32_t sgpr_count;
  uint32_t sgprs[32];
};

struct Counters {
  uint64_t lds_read_bytes, lds_write_bytes, lds_cycles, lds_conflict_cycles;
  uint64_t barriers;
};

struct Launch {
  const Program* program;
  LaunchConfig config;
  MemoryMap memory;
  Findings findings;
  Counters counters{};
  std::vector<uint64_t> executed;  // per instruction of the program
  uint64_t clock = 0;  // wave instructions executed so far

  Launch(const Program* program, const LaunchConfig& config, Buffer* buffers, int count)
      : program(program), config(config), memory(buffers, count), executed(program->code.size()) {}
};

struct Report {
  FindingKind kind;
  int lane = -1;
  int64_t detail = 0;
  uint64_t address = 0;
  int other_inst = -1, other_wave = -1, buffer = -1;
  bool fatal = false;
};
void report(Wave&, const Report&);
void set_mode(Wave&, uint32_t mode_register);
bool waits_for_memory(Wave&, const Inst&);  // vector memory operations keep an s_waitcnt, stores an s_endpgm waiting

// Runs the launch to its end, or to a finding that ends it.
void run(Launch&);

inline int first_lane(uint64_t mask) { return mask ? __builtin_ctzll(mask) : 0; }

}  // namespace emu
