// Global memory as the kernel sees it: host arrays far apart in a 47-bit address space.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

namespace emu {

// Every buffer has a slot of 64 GiB to itself and lies in the middle of it, so that an overrun in either direction hits
// nothing. emulator/arguments.py uses the same constants.
constexpr int kSlotBits = 36;
constexpr uint64_t kSlotMiddle = 1ull << (kSlotBits - 1);
constexpr uint64_t kSharedAperture = 0x10000;   // high 32 bits of generic addresses that mean LDS
constexpr uint64_t kPrivateAperture = 0x20000;  // ... and scratch

struct Buffer {
  uint64_t base;      // guest address
  uint64_t size;      // bytes
  uint8_t* host;
  uint32_t writable;
  uint32_t pad;
  uint64_t requested_load, requested_store;  // bytes asked for by lanes
  uint64_t unique_load, unique_store;        // bytes touched at least once
};

class MemoryMap {
 public:
  explicit MemoryMap(Buffer* buffers, int count);
  // The buffer that holds [address, address + bytes), or null.
  Buffer* find(uint64_t address, uint64_t bytes) {
    uint64_t slot = address >> kSlotBits;
    if (slot >= slots_.size() || !slots_[slot]) return nullptr;
    Buffer* buffer = slots_[slot];
    uint64_t offset = address - buffer->base;
    return offset < buffer->size && bytes <= buffer->size - offset ? buffer : nullptr;
  }
  // The buffer whose slot an address lies in, for messages.
  int nearest(uint64_t address) const;
  int index_of(const Buffer* buffer) const { return int(buffer - buffers_); }
  Buffer* at(int index) { return buffers_ + index; }
  void count_load(Buffer* buffer, uint64_t address, uint32_t bytes) {
    buffer->requested_load += bytes;
    mark(loaded_[index_of(buffer)], address - buffer->base, bytes);
  }
  void count_store(Buffer* buffer, uint64_t address, uint32_t bytes) {
    buffer->requested_store += bytes;
    mark(stored_[index_of(buffer)], address - buffer->base, bytes);
  }
  void finish();  // fills in the unique counts

 private:
  static void mark(std::vector<uint8_t>& bits, uint64_t offset, uint32_t bytes) {
    uint64_t mask = ((1ull << bytes) - 1) << (offset & 7), word;
    uint8_t* at = bits.data() + (offset >> 3);
    memcpy(&word, at, 8);
    word |= mask;
    memcpy(at, &word, 8);
  }

  Buffer* buffers_;
  int count_;
  std::vector<Buffer*> slots_;
  std::vector<std::vector<uint8_t>> loaded_, stored_;  // one bit a byte
};

}  // namespace emu
