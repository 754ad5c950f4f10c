// Addresses of vector memory instructions, lane by lane.
#include "memory.hpp"

namespace emu {
namespace {

// A 32-bit vector address part, zero where the operand is `off`.
void add_offsets(Wave& w, const Inst& i, int operand, int word, uint64_t mask, uint32_t* out) {
  if (i.operands[operand].kind != OperandKind::Vgpr) return;
  VectorSource v;
  fetch_vector(w, i, operand, word + 1, 0, mask, v);
  need_lanes(w, v, word, mask, FindingKind::PoisonAddress);
  for (int l = 0; l < kLanes; l++) out[l] += v.value[word][l];
}

// Buffer resource, as the CDNA3 ISA document lays it out.
struct Resource {
  uint64_t base;
  uint32_t stride, records;
  bool swizzle, add_thread_id;
};

Resource read_resource(Wave& w, const Inst& i, int operand) {
  int first = i.operands[operand].index;
  uint64_t low = need(w, read_sgpr(w, first, 2), FindingKind::PoisonAddress);
  uint64_t high = need(w, read_sgpr(w, first + 2, 2), FindingKind::PoisonAddress);
  uint32_t word1 = uint32_t(low >> 32), word3 = uint32_t(high >> 32);
  return {low & 0xffffffffffff, word1 >> 16 & 0x3fff, uint32_t(high), bool(word1 >> 31), bool(word3 >> 23 & 1)};
}

}  // namespace

void global_addresses(Wave& w, const Inst& i, const Layout& at, Pending& p) {
  bool has_base = at.base >= 0 && i.operands[at.base].kind == OperandKind::Sgpr;
  uint64_t base = uint64_t(int64_t(i.offset));
  if (has_base) base += need(w, read_scalar(w, i, at.base, 2), FindingKind::PoisonAddress);
  VectorSource v;
  int words = has_base ? 1 : 2;
  fetch_vector(w, i, at.address, words, 0, p.mask, v);
  for (int k = 0; k < words; k++) need_lanes(w, v, k, p.mask, FindingKind::PoisonAddress);
  for (int l = 0; l < kLanes; l++)
    p.address[l] = base + (words == 1 ? v.value[0][l] : v.value[0][l] | uint64_t(v.value[1][l]) << 32);
}

void scratch_offsets(Wave& w, const Inst& i, const Layout& at, uint64_t mask, uint32_t* offsets) {
  uint32_t base = uint32_t(i.offset);
  if (i.operands[at.base].kind == OperandKind::Sgpr)
    base += uint32_t(need(w, read_scalar(w, i, at.base, 1), FindingKind::PoisonAddress));
  for (int l = 0; l < kLanes; l++) offsets[l] = base;
  add_offsets(w, i, at.address, 0, mask, offsets);
}

// Address = base + soffset + index * stride + offset. num_records counts records where the instruction has an index and
// the stride is not 0; else it counts bytes, whatever the stride, SGPR offset included (as Mesa's GFX9 descriptors rely
// on). Lanes outside read 0 and write nothing: defined behaviour that kernels rely on.
void buffer_addresses(Wave& w, const Inst& i, const Layout& at, Pending& p) {
  Resource r = read_resource(w, i, at.base);
  if ((r.swizzle && r.stride) || r.add_thread_id) report(w, {.kind = FindingKind::Unsupported, .detail = 2000, .fatal = true});
  uint32_t soffset = uint32_t(need(w, read_scalar(w, i, at.offset, 1), FindingKind::PoisonAddress));
  alignas(64) uint32_t index[kLanes] = {}, offset[kLanes] = {};
  bool idxen = i.flags & kIdxen, offen = i.flags & kOffen;
  if (idxen) add_offsets(w, i, at.address, 0, p.mask, index);
  if (offen) add_offsets(w, i, at.address, idxen ? 1 : 0, p.mask, offset);
  for (int l = 0; l < kLanes; l++) {
    uint64_t in_record = uint64_t(offset[l]) + uint32_t(i.offset);
    uint64_t place = uint64_t(index[l]) * r.stride + in_record;
    bool inside = r.stride && idxen ? index[l] < r.records : place + soffset + p.bytes <= r.records;
    p.address[l] = r.base + soffset + place;
    if (!inside) p.access &= ~(1ull << l);
  }
  if (p.access != p.mask)
    for (auto& word : p.data)
      for (int l = 0; l < kLanes; l++) word[l] = p.access >> l & 1 ? word[l] : 0;
}

}  // namespace emu
