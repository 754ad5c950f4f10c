// Moves between lanes and between register files: readlane, permlane swaps, accumulation registers, DPP's lane maps.
#include <unordered_map>

#include "arith/assumptions.hpp"
#include "operands.hpp"
#include "vector.hpp"

namespace emu {
namespace {

void readlane_from(Wave& w, const Inst& i, int lane) {
  VectorSource s;
  fetch_vector(w, i, 1, 1, kIndexSrc0, 1ull << lane, s);
  write_scalar(w, i, 0, 1, {s.value[0][lane], s.shadow ? s.shadow[0][lane] : 0});
}
void readlane(Wave& w, const Inst& i) { readlane_from(w, i, int(need(w, read_scalar(w, i, 2, 1)) & 63)); }
void readfirstlane(Wave& w, const Inst& i) { readlane_from(w, i, first_lane(w.exec)); }

void writelane(Wave& w, const Inst& i) {  // ignores EXEC
  Scalar value = read_scalar(w, i, 1, 1);
  int lane = int(need(w, read_scalar(w, i, 2, 1)) & 63);
  Lanes x, shadow;
  broadcast(x, uint32_t(value.value));
  broadcast(shadow, uint32_t(value.shadow));
  write_vector(w, i.operands[0].index, 1, &x, value.shadow ? &shadow : nullptr, 1ull << lane);
}

// Exchanges the odd rows of vdst with the even rows of src (rows of 16 or of 32 lanes).
template <int kRow> void permlane_swap(Wave& w, const Inst& i) {
  VectorSource a, b;
  fetch_vector(w, i, 0, 1, 0, ~0ull, a);
  fetch_vector(w, i, 1, 1, 0, ~0ull, b);
  Lanes x, y, sx, sy;
  bool holds = arith::holds(arith::kPermlaneSwap);
  for (int l = 0; l < kLanes; l++) {
    bool odd = l / kRow & 1;
    if (!holds) [[unlikely]] { x[l] = (odd ? b : a).value[0][l], y[l] = (odd ? a : b).value[0][l], sx[l] = sy[l] = 0; continue; }
    x[l] = odd ? b.value[0][l - kRow] : a.value[0][l];
    y[l] = odd ? b.value[0][l] : a.value[0][l + kRow];
    sx[l] = odd ? (b.shadow ? b.shadow[0][l - kRow] : 0) : (a.shadow ? a.shadow[0][l] : 0);
    sy[l] = odd ? (b.shadow ? b.shadow[0][l] : 0) : (a.shadow ? a.shadow[0][l + kRow] : 0);
  }
  bool poisoned = a.shadow || b.shadow;
  write_vector(w, i.operands[0].index, 1, &x, poisoned ? &sx : nullptr, w.exec);
  write_vector(w, i.operands[1].index, 1, &y, poisoned ? &sy : nullptr, w.exec);
}

void swap(Wave& w, const Inst& i) {
  VectorSource a, b;
  fetch_vector(w, i, 0, 1, 0, w.exec, a);
  fetch_vector(w, i, 1, 1, 0, w.exec, b);
  Lanes x, shadow;
  memcpy(x, a.value[0], sizeof x);
  if (a.shadow) memcpy(shadow, a.shadow[0], sizeof shadow);
  write_vector(w, i.operands[0].index, 1, b.value, b.shadow, w.exec);
  write_vector(w, i.operands[1].index, 1, &x, a.shadow ? &shadow : nullptr, w.exec);
}

void move(Wave& w, const Inst& i) {
  VectorSource s;
  fetch_vector(w, i, 1, 1, kIndexSrc0, w.exec, s);
  write_vector(w, i.operands[0].index, 1, s.value, s.shadow, w.exec);
}

const std::unordered_map<std::string, Handler> kHandlers = {
    {"v_readlane_b32", readlane}, {"v_readfirstlane_b32", readfirstlane}, {"v_writelane_b32", writelane},
    {"v_permlane16_swap_b32", permlane_swap<16>}, {"v_permlane32_swap_b32", permlane_swap<32>}, {"v_swap_b32", swap},
    {"v_accvgpr_read_b32", move}, {"v_accvgpr_write_b32", move}, {"v_accvgpr_mov_b32", move},
};

// Source lane of `lane` under a DPP control value (CDNA3 ISA, "DPP"), or -1.
int dpp_source(int control, int lane) {
  int row = lane & ~15, in_row = lane & 15, n = control & 15;
  auto within = [&](int at) { return at >= 0 && at < 16 ? row + at : -1; };
  if (control < 0x100) return (lane & ~3) | (control >> 2 * (lane & 3) & 3);
  switch (control & 0x1f0) {
    case 0x100: return within(in_row + n);
    case 0x110: return within(arith::holds(arith::kDppShiftDirection) ? in_row - n : in_row + n);
    case 0x120: return row | ((in_row - n) & 15);
    case 0x150: return row | n;
  }
  switch (control) {
    case 0x130: return lane < 63 ? lane + 1 : -1;
    case 0x134: return (lane + 1) & 63;
    case 0x138: return lane - 1;
    case 0x13c: return (lane - 1) & 63;
    case 0x140: return row | (15 - in_row);
    case 0x141: return (lane & ~7) | (7 - (lane & 7));
    case 0x142: return row ? row - 1 : -1;
    case 0x143: return lane < 32 ? -1 : 31;
  }
  return -1;
}

}  // namespace

Handler find_lane_op(const std::string& name) {
  auto found = kHandlers.find(name);
  return found == kHandlers.end() ? nullptr : found->second;
}

void prepare_dpp(Inst& i) {
  i.dpp_enable = 0;
  for (int l = 0; l < kLanes; l++) {
    i.lane_map[l] = int8_t(dpp_source(i.dpp_ctrl, l));
    bool on = i.row_mask >> l / 16 & 1 && i.bank_mask >> (l / 4 & 3) & 1;
    i.dpp_enable |= uint64_t(on) << l;
  }
}

}  // namespace emu
