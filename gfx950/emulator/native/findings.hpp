// What the executor reports: plain records that gfx950/emulator/findings.py turns into sentences.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace emu {

enum class FindingKind : uint32_t {  // names and texts: findings.py, same order
  Unimplemented, OutOfBounds, ReadOnlyStore, LdsOutOfBounds, Misaligned, InFlightRead, InFlightWrite, PoisonAddress,
  PoisonBranch, PoisonExec, PoisonStore, PoisonScalar, LdsRace, LdsDmaInFlight, Hazard, Runaway, BadPc, Trap,
  RegisterRange, ScratchOutOfBounds, Unsupported, InactiveLane,
};

struct Finding {
  uint32_t kind;
  uint32_t workgroup[3];
  int32_t wave, lane;        // -1: not one lane
  int32_t inst, other_inst;  // instruction indices; -1: none
  int32_t other_wave;
  int32_t buffer;            // -1: none
  uint64_t address;
  int64_t detail;            // register number, hazard rule, bytes: by kind
  uint64_t count;            // how often the same finding occurred
};

// Thrown to end a launch: a fault nothing sensible can follow, or the first finding of a strict launch.
struct Stop {};

// Collects findings; the same kind at the same pair of instructions is counted, not repeated.
class Findings {
 public:
  bool strict = false;
  const std::vector<Finding>& all() const { return list_; }

  void add(const Finding& finding, bool fatal) {
    auto key = std::make_tuple(finding.kind, finding.inst, finding.other_inst, finding.detail);
    auto [at, fresh] = seen_.try_emplace(key, list_.size());
    if (fresh) list_.push_back(finding);
    list_[at->second].count++;
    if (fatal || strict) throw Stop{};
  }

 private:
  std::vector<Finding> list_;
  std::map<std::tuple<uint32_t, int32_t, int32_t, int64_t>, size_t> seen_;
};

}  // namespace emu
