#include "memory_map.hpp"

#include <bit>

namespace emu {

MemoryMap::MemoryMap(Buffer* buffers, int count) : buffers_(buffers), count_(count), loaded_(count), stored_(count) {
  for (int i = 0; i < count; i++) {
    Buffer& b = buffers[i];
    uint64_t slot = b.base >> kSlotBits;
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    slots_[slot] = &b;
    loaded_[i].resize(b.size / 8 + 16);
    stored_[i].resize(b.writable ? b.size / 8 + 16 : 16);
  }
}

int MemoryMap::nearest(uint64_t address) const {
  uint64_t slot = address >> kSlotBits;
  return slot < slots_.size() && slots_[slot] ? index_of(slots_[slot]) : -1;
}

static uint64_t popcount(const std::vector<uint8_t>& bits) {
  uint64_t total = 0;
  for (uint8_t byte : bits) total += std::popcount(byte);
  return total;
}

void MemoryMap::finish() {
  for (int i = 0; i < count_; i++) {
    buffers_[i].unique_load = popcount(loaded_[i]);
    buffers_[i].unique_store = popcount(stored_[i]);
  }
}

}  // namespace emu
