#include "lds.hpp"

#include <cstring>
#include <type_traits>

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

// Calls f with the number of bytes as a constant, so that its loops over them become vector instructions.
template <typename F> static void with_width(uint32_t bytes, F f) {
  switch (bytes) {
    case 1: return f(std::integral_constant<uint32_t, 1>());
    case 2: return f(std::integral_constant<uint32_t, 2>());
    case 4: return f(std::integral_constant<uint32_t, 4>());
    case 8: return f(std::integral_constant<uint32_t, 8>());
    case 12: return f(std::integral_constant<uint32_t, 12>());
    case 16: return f(std::integral_constant<uint32_t, 16>());
  }
}

void Lds::note_read(Wave& w, uint32_t address, uint32_t bytes, int lane) {
  uint32_t mine = tag(w.id), now = epoch;
  const uint32_t* writer = &writer_[address];
  uint32_t* reader = &reader_[address];
  int32_t *site = &read_site_[address], inst = w.inst;
  with_width(bytes, [&](auto count) {
    bool bad = false;
    for (uint32_t b = 0; b < count; b++) bad |= unordered(writer[b] & ~kAtomic, mine, now);
    if (bad) [[unlikely]] conflict(w, address, bytes, lane, false, 0);
    for (uint32_t b = 0; b < count; b++) {
      reader[b] = unordered(reader[b], mine, now) ? mine | kMany : mine;
      site[b] = inst;
    }
  });
}

void Lds::note_write(Wave& w, uint32_t address, uint32_t bytes, int lane, uint32_t flags) {
  uint32_t mine = tag(w.id), now = epoch, left = mine | (flags & ~kRepeat);
  uint32_t *writer = &writer_[address], *reader = &reader_[address];
  int32_t *site = &write_site_[address], inst = w.inst;
  with_width(bytes, [&](auto count) {
    bool bad = false;
    for (uint32_t b = 0; b < count; b++) bad |= unordered(reader[b], mine, now) | unordered(writer[b] & ~kAtomic, mine, now);
    if (bad) [[unlikely]] conflict(w, address, bytes, lane, true, flags);
    for (uint32_t b = 0; b < count; b++) writer[b] = left, site[b] = inst;
  });
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
