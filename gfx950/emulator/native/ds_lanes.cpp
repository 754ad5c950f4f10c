// LDS hardware used as a crossbar: permutes, swizzles and transposed reads.
#include <cstring>
#include <unordered_map>

#include "arith/assumptions.hpp"
#include "ds.hpp"

namespace emu {
namespace {

// dst[l] = data[from(l)]. A lane that is switched off gives 0, which is poison (unless it lies beyond the workgroup's end):
// a shuffle in a divergent branch is a classic bug, but compilers also shuffle first and discard afterwards.
template <typename From> void gather(Wave& w, const Inst& i, const VectorSource& data, From from) {
  Pending& p = begin_lds(w, w.exec);
  p.has_shadow = data.shadow != nullptr;
  for (int l = 0; l < kLanes; l++) {
    int source = from(l);
    bool on = w.exec >> source & 1;
    p.data[0][l] = on ? data.value[0][source] : 0;
    p.shadow[0][l] = on && data.shadow ? data.shadow[0][source] : 0;
    if (on || !(w.exec >> l & 1) || !(w.populated >> source & 1)) continue;
    p.shadow[0][l] = ~0u, p.has_shadow = true;
    w.group->inactive_shuffle = {w.inst, w.id, l, source};
  }
  set_lds_destination(w, p, i.operands[0], 1, Landing::Whole);
}

void bpermute(Wave& w, const Inst& i) {
  alignas(64) uint32_t address[kLanes];
  lds_addresses(w, i, 1, i.offset, w.exec, address);
  VectorSource data;
  fetch_vector(w, i, 2, 1, 0, w.exec, data);
  gather(w, i, data, [&](int l) { return address[l] >> 2 & 63; });
}

// dst[to(l)] = data[l]; lanes that nobody writes get 0; the highest lane wins.
void permute(Wave& w, const Inst& i) {
  alignas(64) uint32_t address[kLanes];
  lds_addresses(w, i, 1, i.offset, w.exec, address);
  VectorSource data;
  fetch_vector(w, i, 2, 1, 0, w.exec, data);
  Pending& p = begin_lds(w, w.exec);
  p.has_shadow = data.shadow != nullptr;
  memset(p.data[0], 0, sizeof(Lanes));
  memset(p.shadow[0], 0, sizeof(Lanes));
  for (int l = 0; l < kLanes; l++) {
    if (!(w.exec >> l & 1)) continue;
    int to = address[l] >> 2 & 63;
    p.data[0][to] = data.value[0][l];
    p.shadow[0][to] = data.shadow ? data.shadow[0][l] : 0;
  }
  set_lds_destination(w, p, i.operands[0], 1, Landing::Whole);
}

// Offset field of ds_swizzle_b32 (CDNA3 ISA, "DS_SWIZZLE_B32"): FFT, rotate, quad permutation or bit masks.
int swizzle_source(uint32_t control, int lane) {
  int half = lane & 32, l = lane & 31;
  if (control >= 0xe000) {
    uint32_t mask = control & 31;
    int reversed = 0;
    for (int b = 0; b < 5; b++) reversed |= (l >> b & 1) << (4 - b);
    return half | (mask == 31 ? l : (reversed & ~int(mask)) | (l & int(mask)));
  }
  if (control >= 0xc000) {
    int rotate = control >> 5 & 31, keep = control & 31;
    if (control >> 10 & 1) rotate = -rotate;
    return half | (l & keep) | ((l + rotate) & 31 & ~keep);
  }
  if (control & 0x8000) return (lane & ~3) | (control >> 2 * (lane & 3) & 3);
  int and_mask = control & 31, or_mask = control >> 5 & 31, xor_mask = control >> 10 & 31;
  return half | (((l & and_mask) | or_mask) ^ xor_mask);
}

void swizzle(Wave& w, const Inst& i) {
  VectorSource data;
  fetch_vector(w, i, 1, 1, 0, w.exec, data);
  gather(w, i, data, [&](int l) { return swizzle_source(uint32_t(i.offset) & 0xffff, l); });
}

// --- transposed reads -------------------------------------------------------------------------------------------------------
// Sixteen lanes read a matrix of 16 columns, row after row: with `per_lane` elements a lane, one row spans 16 / per_lane
// lanes. Lane c of the sixteen receives column c.
uint32_t element(const Lanes* data, int lane, int index, int bits) {
  int at = index * bits, word = at / 32, shift = at % 32;
  uint64_t pair = data[word][lane];
  if (shift + bits > 32) pair |= uint64_t(data[word + 1][lane]) << 32;
  return uint32_t(pair >> shift) & ((1u << bits) - 1);
}
void put_element(Lanes* data, int lane, int index, int bits, uint32_t x) {
  int at = index * bits, word = at / 32, shift = at % 32;
  data[word][lane] |= x << shift;
  if (shift + bits > 32) data[word + 1][lane] |= x >> (32 - shift);
}

template <int kBits> void transpose(const Lanes* from, Lanes* to) {
  constexpr int kPerLane = kBits == 6 ? 16 : 64 / kBits, kLanesPerRow = 16 / kPerLane;
  if (!arith::holds(arith::kTransposedRead)) [[unlikely]] return void(memcpy(to, from, 2 * sizeof(Lanes)));
  for (int l = 0; l < kLanes; l++) {
    int block = l & ~15, column = l & 15;
    for (int row = 0; row < kPerLane; row++) {
      int source = block + row * kLanesPerRow + column / kPerLane;
      put_element(to, l, row, kBits, element(from, source, column % kPerLane, kBits));
    }
  }
}

template <int kBits> void read_transposed(Wave& w, const Inst& i) {
  constexpr int kBytes = kBits == 6 ? 12 : 8;
  Pending& p = begin_lds(w, w.exec);
  p.bytes = p.lds_bytes = kBytes, p.lds_accesses = 1;
  lds_addresses(w, i, 1, i.offset, p.mask, p.lds_address[0]);
  uint64_t inside = check_lds_bounds(w, p.lds_address[0], kBytes, p.mask);
  Lanes data[3] = {}, shadow[3] = {};
  Lds& lds = w.group->lds;
  for (uint64_t left = inside; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    lds.note_read(w, p.lds_address[0][l], kBytes, l);
    put_lane(data, l, &lds.data[p.lds_address[0][l]], kBytes, false);
    put_lane(shadow, l, &lds.shadow[p.lds_address[0][l]], kBytes, false);
  }
  memset(p.data, 0, sizeof p.data);
  memset(p.shadow, 0, sizeof p.shadow);
  transpose<kBits>(data, p.data);
  transpose<kBits>(shadow, p.shadow);
  p.has_shadow = true;
  count_lds(w, p.lds_address[0], kBytes, inside, false);
  set_lds_destination(w, p, i.operands[0], kBytes / 4, Landing::Whole);
}

const std::unordered_map<std::string, Handler> kExchanges = {
    {"ds_bpermute_b32", bpermute}, {"ds_permute_b32", permute}, {"ds_swizzle_b32", swizzle}};
const std::unordered_map<std::string, Handler> kTransposes = {
    {"ds_read_b64_tr_b4", read_transposed<4>}, {"ds_read_b64_tr_b8", read_transposed<8>},
    {"ds_read_b64_tr_b16", read_transposed<16>}, {"ds_read_b96_tr_b6", read_transposed<6>}};

}  // namespace

Handler find_lds_exchange(const std::string& name) {
  auto found = kExchanges.find(name);
  return found == kExchanges.end() ? nullptr : found->second;
}
Handler find_lds_transpose(const std::string& name) {
  auto found = kTransposes.find(name);
  return found == kTransposes.end() ? nullptr : found->second;
}

}  // namespace emu
