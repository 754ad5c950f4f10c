#include "lds.hpp"

#include <cstring>

#include "machine.hpp"

namespace emu {

void Lds::reset(uint32_t bytes, uint8_t fill) {
  data.assign(bytes, fill);
  shadow.assign(bytes, 0xff);
  writer_.assign(bytes, 0);
  reader_.assign(bytes, 0);
  write_site_.assign(bytes, -1);
  read_site_.assign(bytes, -1);
  epoch = 1;
}

// Another wave's access of this epoch, or one's own LDS-DMA that has not been waited for.
static bool unordered(uint32_t other, uint32_t mine, uint32_t epoch) { return other >> 8 == epoch && other != mine; }

static bool harmless(uint32_t tag, uint32_t flags) { return tag & flags & Lds::kAtomic || flags & Lds::kRepeat; }

void Lds::note_read(Wave& w, uint32_t address, uint32_t bytes, int lane) {
  uint32_t mine = tag(w.id);
  bool bad = false;
  for (uint32_t b = address; b < address + bytes; b++) bad |= unordered(writer_[b] & ~kAtomic, mine, epoch);
  if (bad) [[unlikely]] conflict(w, address, bytes, lane, false, 0);
  for (uint32_t b = address; b < address + bytes; b++) {
    bool shared = unordered(reader_[b], mine, epoch);
    reader_[b] = shared ? mine | kMany : mine;
    read_site_[b] = w.inst;
  }
}

void Lds::note_write(Wave& w, uint32_t address, uint32_t bytes, int lane, uint32_t flags) {
  uint32_t mine = tag(w.id);
  bool bad = false;
  for (uint32_t b = address; b < address + bytes; b++)
    bad |= unordered(reader_[b], mine, epoch) || (unordered(writer_[b] & ~kAtomic, mine, epoch) && !harmless(writer_[b], flags));
  if (bad) [[unlikely]] conflict(w, address, bytes, lane, true, flags);
  for (uint32_t b = address; b < address + bytes; b++) writer_[b] = mine | (flags & ~kRepeat), write_site_[b] = w.inst;
}

void Lds::write(Wave& w, uint32_t address, const uint8_t* value, const uint8_t* poison, uint32_t bytes, int lane) {
  bool repeats = !memcmp(&data[address], value, bytes) && !memcmp(&shadow[address], poison, bytes);
  note_write(w, address, bytes, lane, repeats ? kRepeat : 0);
  memcpy(&data[address], value, bytes);
  memcpy(&shadow[address], poison, bytes);
}

void Lds::retag(const Wave& w, uint32_t address, uint32_t bytes, bool write, uint32_t flags, int32_t inst) {
  auto& tags = write ? writer_ : reader_;
  auto& sites = write ? write_site_ : read_site_;
  for (uint32_t b = address; b < address + bytes && b < size(); b++)
    if (int(tags[b] & kWaveMask) == w.id) tags[b] = tag(w.id) | flags, sites[b] = inst;
}

void Lds::conflict(Wave& w, uint32_t address, uint32_t bytes, int lane, bool write, uint32_t flags) {
  uint32_t mine = tag(w.id);
  for (uint32_t b = address; b < address + bytes; b++) {
    bool by_writer = unordered(writer_[b] & ~kAtomic, mine, epoch) && !harmless(writer_[b], flags);
    if (!by_writer && !(write && unordered(reader_[b], mine, epoch))) continue;
    uint32_t other = by_writer ? writer_[b] : reader_[b];
    bool own = int(other & kWaveMask) == w.id && by_writer;
    report(w, {.kind = own ? FindingKind::LdsDmaInFlight : FindingKind::LdsRace, .lane = lane,
               .detail = (write ? 2 : 0) + by_writer, .address = b,
               .other_inst = by_writer ? write_site_[b] : read_site_[b],
               .other_wave = other & kMany ? -1 : int(other & kWaveMask)});
    return;
  }
}

}  // namespace emu
