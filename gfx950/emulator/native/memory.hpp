// The steps that vector memory instructions are made of.
#pragma once
#include "operands.hpp"

namespace emu {

// Which operand is what; -1: absent.
struct Layout {
  int dst = -1, data = -1, address = -1, base = -1, offset = -1;
};

// Lane addresses into p.address; lanes that fail a buffer's range check leave p.access.
void global_addresses(Wave&, const Inst&, const Layout&, Pending&);
void buffer_addresses(Wave&, const Inst&, const Layout&, Pending&);
void scratch_offsets(Wave&, const Inst&, const Layout&, uint64_t mask, uint32_t* offsets);

// The data of a store; reports poison in it, the last moment before others can see it.
void fetch_store_data(Wave&, const Inst&, const MemoryOp&, int operand, Pending&);
// The same for private memory, which may hold poison (spilled registers): p.shadow travels with it.
void fetch_private_data(Wave&, const Inst&, const MemoryOp&, int operand, Pending&);

// Puts one lane's bytes (1..16) into its data words, extending to at least a word; and back.
inline void put_lane(Lanes* data, int lane, const uint8_t* from, int bytes, bool sign) {
  for (int k = 0; k < bytes / 4; k++) memcpy(&data[k][lane], from + 4 * k, 4);
  if (bytes >= 4) return;
  uint32_t x = from[0] | (bytes == 2 ? from[1] << 8 : 0);
  int unused = 32 - 8 * bytes;
  data[0][lane] = sign ? uint32_t(int32_t(x << unused) >> unused) : x;
}

inline void take_lane(const Lanes* data, int lane, uint8_t* to, int bytes) {
  for (int k = 0; k < bytes / 4; k++) memcpy(to + 4 * k, &data[k][lane], 4);
  if (bytes < 4) memcpy(to, &data[0][lane], bytes);
}

void start_lds_dma(Wave&, const Inst&, const MemoryOp&, Pending&);
void run_atomic(Wave&, const Inst&, const MemoryOp&, const Layout&, Pending&);
void access_scratch(Wave&, const uint32_t* offsets, uint64_t mask, Pending&);
// Lanes of a generic access that point into the LDS or the scratch window, and an access that has some.
uint64_t generic_windows(const Pending&);
void run_windows(Wave&, const Inst&, const MemoryOp&, const Layout&, Pending&, uint64_t lanes);

}  // namespace emu
