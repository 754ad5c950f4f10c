// LDS of a workgroup, with a byte-exact race detector.
//
// Each byte remembers its last writer and last reader as (barrier epoch, wave). Two accesses of one epoch by different
// waves, one of them a write, have no barrier between them: a race, whatever the schedule made of it.
#pragma once
#include <cstdint>
#include <vector>

namespace emu {

struct Wave;

class Lds {
 public:
  // Tags: epoch << 8 | flags | wave.
  static constexpr uint32_t kWaveMask = 15, kMany = 32, kAtomic = 64, kInFlightDma = 128;
  static constexpr uint32_t kRepeat = 256;  // argument of note_write only: the bytes are what LDS holds already

  void reset(uint32_t bytes, uint8_t fill);
  uint32_t size() const { return uint32_t(data.size()); }
  void next_epoch() { epoch++; }
  uint32_t tag(int wave) const { return epoch << 8 | uint32_t(wave); }

  // Record an access of `bytes` bytes; reports a race with an unordered access of another wave.
  void note_read(Wave&, uint32_t address, uint32_t bytes, int lane);
  void note_write(Wave&, uint32_t address, uint32_t bytes, int lane, uint32_t flags = 0);
  // One lane's store. Waves that store the same bytes do not race: compilers let several waves store copies of a value.
  void write(Wave&, uint32_t address, const uint8_t* value, const uint8_t* poison, uint32_t bytes, int lane);
  // An access still in flight: moves the caller's own tags to the present epoch.
  void retag(const Wave&, uint32_t address, uint32_t bytes, bool write, uint32_t flags, int32_t inst);

  std::vector<uint8_t> data, shadow;

 private:
  void conflict(Wave&, uint32_t address, uint32_t bytes, int lane, bool write, uint32_t flags);

  uint32_t epoch = 1;
  std::vector<uint32_t> writer_, reader_;
  std::vector<int32_t> write_site_, read_site_;  // instruction indices
};

}  // namespace emu
