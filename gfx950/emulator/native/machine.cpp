#include "machine.hpp"

#include <cstdlib>

namespace emu {

static void poison_vgprs(Wave& w, int first, int count) {
  for (int r = first; r < first + count; r++)
    for (int l = 0; l < kLanes; l++) w.v[r][l] = kPoisonValue, w.shadow[r][l] = ~0u;
}

Wave::Wave() : storage(new uint32_t[2 * kVgprs * kLanes + kLanes]) {
  auto at = (reinterpret_cast<uintptr_t>(storage.get()) + 63) & ~uintptr_t(63);
  v = reinterpret_cast<Lanes*>(at);
  shadow = v + kVgprs;
  poison_vgprs(*this, 0, kVgprs);
}

// Work-item ids come packed in v0: x in bits 9:0, y in 19:10, z in 29:20, as many of them as the kernel asks for.
static void set_workitem_ids(Wave& w, const LaunchConfig& config) {
  uint32_t nx = config.block[0], ny = config.block[1], total = nx * ny * config.block[2], first = uint32_t(w.id) * kLanes;
  uint64_t valid = 0;
  for (uint32_t l = 0; l < kLanes; l++) {
    uint32_t item = first + l;
    if (item < total) valid |= 1ull << l;
    uint32_t y = config.workitem_dims > 1 ? item / nx % ny : 0, z = config.workitem_dims > 2 ? item / (nx * ny) : 0;
    w.v[0][l] = item % nx | y << 10 | z << 20;
    w.shadow[0][l] = 0;
  }
  w.vstate[0] = 0;
  w.populated = valid;
  w.set_exec(valid);
}

static void set_sgpr(Wave& w, int index, uint32_t value) { w.s[index] = value, w.sshadow[index] = 0; }

static void set_sgprs(Wave& w, const LaunchConfig& config) {
  for (uint32_t k = 0; k < config.sgpr_count; k++) set_sgpr(w, int(k), config.sgprs[k]);
  for (int k = 0; k < 3; k++)
    if (config.group_id_sgpr[k] >= 0) set_sgpr(w, config.group_id_sgpr[k], w.group->id[k]);
  if (config.group_info_sgpr >= 0) set_sgpr(w, config.group_info_sgpr, uint32_t(w.group->waves.size()));
  for (int k : {102, 103, 104, 105, kExec, kExec + 1}) w.sshadow[k] = 0;  // FLAT_SCRATCH, XNACK_MASK, EXEC
}


void Wave::reset(Launch& l, Workgroup& g, int index) {
  launch = &l, group = &g, id = index;
  const LaunchConfig& config = l.config;
  poison_vgprs(*this, 0, int(config.vgpr_count));
  poison_vgprs(*this, 256, int(config.agpr_count));
  for (int r = 0; r < kVgprs; r++) vstate[r] = kPoisoned, vpending[r] = 0;
  for (int r = 0; r < kSgprs; r++) s[r] = kPoisonValue, sshadow[r] = ~0u, sstate[r] = 0, spending[r] = 0;
  scc = false, scc_poison = true;
  set_workitem_ids(*this, config);
  set_sgprs(*this, config);
  set_mode(*this, config.mode_register);
  scratch.assign(size_t(config.scratch_bytes) * kLanes, 0xff);
  scratch_shadow.assign(size_t(config.scratch_bytes) * kLanes, 0xff);
  pc = l.program->index_of(config.entry_pc);
  hazards = {};
  yield = resumed = false;
  executed = 0;
  loop = -1;
  status = WaveStatus::Ready;
}

void Workgroup::reset(Launch& l, uint32_t flat) {
  const LaunchConfig& config = l.config;
  flat_id = flat;
  id[0] = flat % config.grid[0];
  id[1] = flat / config.grid[0] % config.grid[1];
  id[2] = flat / (config.grid[0] * config.grid[1]);
  lds.reset(config.lds_bytes, uint8_t(config.lds_fill));
  size_t items = size_t(config.block[0]) * config.block[1] * config.block[2], count = (items + kLanes - 1) / kLanes;
  while (waves.size() < count) waves.push_back(std::make_unique<Wave>());
  for (size_t k = 0; k < count; k++) waves[k]->reset(l, *this, int(k));
  live = int(count);
  waiting = 0;
  inactive_shuffle = {};
}

// MODE: 3:0 rounding, 7:4 denormals, 8 dx10_clamp, 9 ieee, 23 fp16_ovfl, 27 gpr_idx_en, 28 vskip (CDNA3 ISA, "MODE register").
void set_mode(Wave& w, uint32_t m) {
  w.mode_register = m;
  w.mode.round32 = m & 3;
  w.mode.round16_64 = m >> 2 & 3;
  w.mode.fp32_denorm = m >> 4 & 3;
  w.mode.fp16_64_denorm = m >> 6 & 3;
  w.mode.dx10_clamp = m >> 8 & 1;
  w.mode.ieee = m >> 9 & 1;
  w.mode.fp16_overflow = m >> 23 & 1;
  w.gpr_index_on = m >> 27 & 1;
  w.vskip = m >> 28 & 1;
}

static bool is_poison(FindingKind kind) { return kind >= FindingKind::PoisonAddress && kind <= FindingKind::PoisonScalar; }

// A poisoned value is being used, and it may come from a switched-off lane: name that shuffle as well.
static void report_inactive_shuffle(Wave& w, Finding f) {
  const InactiveShuffle& shuffle = w.group->inactive_shuffle;
  f.kind = uint32_t(FindingKind::InactiveLane);
  f.other_inst = f.inst, f.other_wave = f.wave;
  f.inst = shuffle.inst, f.wave = shuffle.wave, f.lane = shuffle.lane, f.detail = shuffle.from;
  w.launch->findings.add(f, false);
}

void report(Wave& w, const Report& r) {
  Finding f{};
  f.kind = uint32_t(r.kind);
  for (int k = 0; k < 3; k++) f.workgroup[k] = w.group->id[k];
  f.wave = w.id;
  f.lane = r.lane;
  f.inst = w.inst;
  f.other_inst = r.other_inst;
  f.other_wave = r.other_wave;
  f.buffer = r.buffer;
  f.address = r.address;
  f.detail = r.detail;
  if (is_poison(r.kind) && w.group->inactive_shuffle.inst >= 0) report_inactive_shuffle(w, f);
  w.launch->findings.add(f, r.fatal);
}

void run_unimplemented(Wave& w, const Inst&) { report(w, {.kind = FindingKind::Unimplemented, .fatal = true}); }
void run_off_the_end(Wave& w, const Inst& i) { report(w, {.kind = FindingKind::BadPc, .address = i.pc, .fatal = true}); }

}  // namespace emu
