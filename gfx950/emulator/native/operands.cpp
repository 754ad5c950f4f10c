#include "operands.hpp"

namespace emu {

void report_in_flight(Wave& w, bool vector, int index, uint64_t mask, bool write) {
  int other = -1;
  if (!in_flight(w, vector, index, mask, other)) return;
  report(w, {.kind = write ? FindingKind::InFlightWrite : FindingKind::InFlightRead,
             .detail = vector ? index : kVgprs + index, .other_inst = other});
}

Scalar read_special(Wave& w, int index, int words) {
  switch (index) {
    case 235: return {words == 2 ? kSharedAperture << 32 : 0, 0};
    case 236: return {words == 2 ? kSharedAperture << 32 | 0xffffffff : 0, 0};
    case 237: return {words == 2 ? kPrivateAperture << 32 : 0, 0};
    case 238: return {words == 2 ? kPrivateAperture << 32 | 0xffffffff : 0, 0};
    case 251: return {w.vcc() == 0, 0};
    case 252: return {w.exec == 0, 0};
    case kScc: return {w.scc, w.scc_poison ? ~0ull : 0};
  }
  report(w, {.kind = FindingKind::Unsupported, .detail = index, .fatal = true});
  return {};
}

void write_exec(Wave& w, Scalar x) {
  if (x.shadow) [[unlikely]] report(w, {.kind = FindingKind::PoisonExec, .lane = first_lane(x.shadow)});
  w.sshadow[kExec] = w.sshadow[kExec + 1] = 0;
  w.set_exec(x.value);
}

void check_vgpr_range(Wave& w, int index, int words) {
  const auto& config = w.launch->config;
  bool inside = index < 256 ? uint32_t(index + words) <= config.vgpr_count : uint32_t(index - 256 + words) <= config.agpr_count;
  if (!inside) report(w, {.kind = FindingKind::RegisterRange, .detail = index, .fatal = index + words > kVgprs});
}

static void fetch_registers(Wave& w, int index, int words, uint64_t mask, VectorSource& out) {
  uint8_t state = vector_state(w, index, words);
  out.value = w.v + index;
  if (state) [[unlikely]] {
    for (int k = 0; state & kInFlight && k < words; k++)
      if (w.vstate[index + k] & kInFlight) report_in_flight(w, true, index + k, mask, false);
    if (state & kPoisoned) out.shadow = w.shadow + index;
  }
}

static void fetch_uniform(Wave& w, int index, int words, VectorSource& out) {
  for (int k = 0; k < words && k < kMaxTemp; k += 2) {
    Scalar x = read_sgpr(w, index + k, words == 1 ? 1 : 2);
    broadcast(out.temp[k], uint32_t(x.value));
    if (words > 1) broadcast(out.temp[k + 1], uint32_t(x.value >> 32));
    if (x.shadow) [[unlikely]] {
      broadcast(out.temp_shadow[k], uint32_t(x.shadow));
      if (words > 1) broadcast(out.temp_shadow[k + 1], uint32_t(x.shadow >> 32));
      out.shadow = out.temp_shadow;
    }
  }
  out.value = out.temp;
}

void fetch_vector(Wave& w, const Inst& i, int k, int words, int gpr_index_bit, uint64_t mask, VectorSource& out) {
  const Operand& o = i.operands[k];
  out.shadow = nullptr;
  switch (o.kind) {
    case OperandKind::Vgpr: {
      int index = o.index;
      if (w.gpr_index_on && w.index_mode() & gpr_index_bit) [[unlikely]] {
        index += w.s[kM0] & 255;
        check_vgpr_range(w, index, words);
      }
      return fetch_registers(w, index, words, mask, out);
    }
    case OperandKind::Sgpr: return fetch_uniform(w, o.index, words, out);
    default: out.value = i.constant[k];
  }
}

void need_lanes(Wave& w, const VectorSource& source, int word, uint64_t mask, FindingKind kind) {
  if (!source.shadow) [[likely]] return;
  if (uint64_t bad = lanes_set(source.shadow[word]) & mask) report(w, {.kind = kind, .lane = first_lane(bad)});
}

static void write_word(Wave& w, int index, const Lanes& value, const Lanes* shadow, uint64_t mask) {
  Lanes& d = w.v[index];
  Lanes& ds = w.shadow[index];
  bool was_poisoned = w.vstate[index] & kPoisoned;
  if (mask == ~0ull) {
    memcpy(d, value, sizeof(Lanes));
  } else {
    for (int l = 0; l < kLanes; l++) d[l] = mask >> l & 1 ? value[l] : d[l];
  }
  if (!was_poisoned && !shadow) [[likely]] return;
  uint32_t any = 0;
  for (int l = 0; l < kLanes; l++) {
    ds[l] = mask >> l & 1 ? (shadow ? (*shadow)[l] : 0) : ds[l];
    any |= ds[l];
  }
  w.vstate[index] = uint8_t((w.vstate[index] & ~kPoisoned) | (any ? kPoisoned : 0));
}

void write_vector(Wave& w, int index, int words, const Lanes* value, const Lanes* shadow, uint64_t mask) {
  if (!mask) return;
  for (int k = 0; k < words; k++) {
    if (w.vstate[index + k] & kInFlight) [[unlikely]] report_in_flight(w, true, index + k, mask, true);
    write_word(w, index + k, value[k], shadow ? &shadow[k] : nullptr, mask);
  }
}

}  // namespace emu
