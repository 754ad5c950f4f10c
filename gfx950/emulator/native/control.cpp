// What steers a wave: branches, waits, barriers, mode and index registers (SOPP and their like).
#include <unordered_map>

#include "operands.hpp"

namespace emu {
namespace {

uint32_t field16(const Inst& i) { return i.word0 & 0xffff; }

void nothing(Wave&, const Inst&) {}

// --- branches -------------------------------------------------------------------------------------------------------------
void jump(Wave& w, const Inst& i) {
  if (i.target < w.pc) w.loop = w.inst;
  w.pc = i.target;
}

template <bool kWhen> void branch_scc(Wave& w, const Inst& i) {
  if (w.scc_poison) report(w, {.kind = FindingKind::PoisonBranch});
  if (w.scc == kWhen) jump(w, i);
}
template <bool kZero> void branch_vcc(Wave& w, const Inst& i) {
  Scalar vcc = read_sgpr(w, kVcc, 2);
  if (vcc.shadow && !(vcc.value & ~vcc.shadow)) report(w, {.kind = FindingKind::PoisonBranch});
  if ((vcc.value == 0) == kZero) jump(w, i);
}
template <bool kZero> void branch_exec(Wave& w, const Inst& i) {
  if ((w.exec == 0) == kZero) jump(w, i);
}

void jump_to(Wave& w, uint64_t pc) {
  int32_t index = w.launch->program->index_of(pc);
  if (index < 0) report(w, {.kind = FindingKind::BadPc, .address = pc, .fatal = true});
  w.pc = index;
}
uint64_t next_pc(const Inst& i) { return i.pc + i.size; }

void getpc(Wave& w, const Inst& i) { write_scalar(w, i, 0, 2, {next_pc(i), 0}); }
void setpc(Wave& w, const Inst& i) { jump_to(w, need(w, read_scalar(w, i, 0, 2))); }
void swappc(Wave& w, const Inst& i) {
  uint64_t target = need(w, read_scalar(w, i, 1, 2));
  write_scalar(w, i, 0, 2, {next_pc(i), 0});
  jump_to(w, target);
}
void call(Wave& w, const Inst& i) {
  write_scalar(w, i, 0, 2, {next_pc(i), 0});
  jump(w, i);
}

// --- waiting --------------------------------------------------------------------------------------------------------------
int vmcnt_of(const Inst& i) { return (i.word0 & 15) | (i.word0 >> 14 & 3) << 4; }
int lgkmcnt_of(const Inst& i) { return i.word0 >> 8 & 15; }

void waitcnt(Wave& w, const Inst& i) {
  if (vmcnt_of(i) < 63) wait_vector_memory(w, vmcnt_of(i));
  if (lgkmcnt_of(i) < 15) wait_lgkm(w, lgkmcnt_of(i));
}

void barrier(Wave& w, const Inst&) {
  w.status = WaveStatus::AtBarrier;
  w.group->waiting++;
  w.launch->counters.barriers++;
}
void sleep(Wave& w, const Inst&) { w.yield = true; }
void endpgm(Wave& w, const Inst&) {
  finish_pending(w);
  w.status = WaveStatus::Done;
  w.group->live--;
}
void trap(Wave& w, const Inst& i) { report(w, {.kind = FindingKind::Trap, .detail = field16(i) & 255, .fatal = true}); }

// --- registers of the machine -----------------------------------------------------------------------------------------------
enum HardwareRegister { kModeRegister = 1, kStatusRegister = 2, kHwId = 4, kGprAlloc = 5, kLdsAlloc = 6, kXccId = 20 };

uint32_t hardware_register(Wave& w, uint32_t id) {
  switch (id) {
    case kModeRegister: return w.mode_register;
    case kStatusRegister: return uint32_t(w.scc) | uint32_t(w.exec == 0) << 9 | uint32_t(w.vcc() == 0) << 10;
    case kHwId: return uint32_t(w.id);
    case kLdsAlloc: return (w.group->lds.size() + 511) / 512 << 12;
    case kXccId: return w.group->flat_id % 8;  // workgroups go round the 8 XCDs
  }
  report(w, {.kind = FindingKind::Unsupported, .detail = 1000 + int64_t(id), .fatal = true});
  return 0;
}

struct RegisterField {
  uint32_t id, offset, size;
  explicit RegisterField(const Inst& i) : id(i.word0 & 63), offset(i.word0 >> 6 & 31), size((i.word0 >> 11 & 31) + 1) {}
  uint32_t mask() const { return size == 32 ? ~0u : (1u << size) - 1; }
};

void getreg(Wave& w, const Inst& i) {
  RegisterField f(i);
  write_scalar(w, i, 0, 1, {hardware_register(w, f.id) >> f.offset & f.mask(), 0});
}
void setreg(Wave& w, const Inst& i) {
  RegisterField f(i);
  uint32_t value = uint32_t(need(w, read_scalar(w, i, 1, 1)));
  if (f.id != kModeRegister) return report(w, {.kind = FindingKind::Unsupported, .detail = 1000 + int64_t(f.id), .fatal = true});
  set_mode(w, (w.mode_register & ~(f.mask() << f.offset)) | (value & f.mask()) << f.offset);
}

constexpr uint32_t kGprIndexEnable = 1u << 27;
void set_index_on(Wave& w, bool on) { set_mode(w, (w.mode_register & ~kGprIndexEnable) | (on ? kGprIndexEnable : 0)); }
void gpr_index_on(Wave& w, const Inst& i) {
  uint32_t index = uint32_t(need(w, read_scalar(w, i, 0, 1))) & 255;
  uint32_t m0 = (w.s[kM0] & 0xffff0f00) | index | (i.operands[1].value & 15) << 12;
  write_sgpr(w, kM0, 1, {m0, 0});
  set_index_on(w, true);
}
// VSKIP = bit S1 of S0.
void setvskip(Wave& w, const Inst& i) {
  uint64_t value = need(w, read_scalar(w, i, 0, 1)), bit = need(w, read_scalar(w, i, 1, 1)) & 31;
  constexpr uint32_t kVskip = 1u << 28;
  set_mode(w, (w.mode_register & ~kVskip) | (value >> bit & 1 ? kVskip : 0));
}
void gpr_index_off(Wave& w, const Inst&) { set_index_on(w, false); }
void gpr_index_index(Wave& w, const Inst& i) {
  uint32_t index = uint32_t(need(w, read_scalar(w, i, 0, 1))) & 255;
  write_sgpr(w, kM0, 1, {(w.s[kM0] & ~255u) | index, 0});
}
void gpr_index_mode(Wave& w, const Inst& i) {
  write_sgpr(w, kM0, 1, {(w.s[kM0] & 0xffff0fff) | (field16(i) & 15) << 12, 0});
}

const std::unordered_map<std::string, Handler> kHandlers = {
    {"s_nop", nothing}, {"s_setprio", nothing}, {"s_icache_inv", nothing}, {"s_sethalt", nothing}, {"s_setkill", nothing},
    {"s_incperflevel", nothing}, {"s_decperflevel", nothing}, {"s_wakeup", nothing}, {"s_ttracedata", nothing},
    {"s_sendmsg", nothing}, {"s_sendmsghalt", nothing}, {"s_dcache_inv", nothing}, {"s_dcache_wb", nothing},
    {"s_dcache_inv_vol", nothing}, {"s_dcache_wb_vol", nothing}, {"v_nop", nothing},
    {"s_branch", jump}, {"s_cbranch_scc0", branch_scc<false>}, {"s_cbranch_scc1", branch_scc<true>},
    {"s_cbranch_vccz", branch_vcc<true>}, {"s_cbranch_vccnz", branch_vcc<false>},
    {"s_cbranch_execz", branch_exec<true>}, {"s_cbranch_execnz", branch_exec<false>},
    {"s_cbranch_cdbgsys", nothing}, {"s_cbranch_cdbguser", nothing}, {"s_cbranch_cdbgsys_or_user", nothing},
    {"s_cbranch_cdbgsys_and_user", nothing},
    {"s_getpc_b64", getpc}, {"s_setpc_b64", setpc}, {"s_swappc_b64", swappc}, {"s_call_b64", call},
    {"s_waitcnt", waitcnt}, {"s_barrier", barrier}, {"s_sleep", sleep}, {"s_trap", trap},
    {"s_endpgm", endpgm}, {"s_endpgm_saved", endpgm}, {"s_endpgm_ordered_ps_done", endpgm},
    {"s_getreg_b32", getreg}, {"s_setreg_b32", setreg}, {"s_setreg_imm32_b32", setreg},
    {"s_set_gpr_idx_on", gpr_index_on}, {"s_set_gpr_idx_off", gpr_index_off}, {"s_set_gpr_idx_idx", gpr_index_index},
    {"s_set_gpr_idx_mode", gpr_index_mode}, {"s_setvskip", setvskip},
};

}  // namespace

bool waits_for_memory(Wave& w, const Inst& i) {
  return (i.run == waitcnt && w.vm.size() > vmcnt_of(i)) || (i.run == endpgm && has_posted_stores(w));
}

Handler find_control(const std::string& name) {
  auto found = kHandlers.find(name);
  return found == kHandlers.end() ? nullptr : found->second;
}

}  // namespace emu
