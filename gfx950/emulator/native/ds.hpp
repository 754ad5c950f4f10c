// LDS instructions: common steps.
#pragma once
#include "memory.hpp"

namespace emu {

// The address of each lane for data operand set `set` (read2/write2 have two).
void lds_addresses(Wave&, const Inst&, int operand, int32_t offset, uint64_t mask, uint32_t* out);
// Drops lanes whose access would leave LDS, with a report.
uint64_t check_lds_bounds(Wave&, const uint32_t* address, uint32_t bytes, uint64_t mask);
void count_lds(Wave&, const uint32_t* address, uint32_t bytes, uint64_t mask, bool write);

// Starts an operation whose `words` result registers land at `first`; they are in flight until waited for.
Pending& begin_lds(Wave&, uint64_t mask);
void set_lds_destination(Wave&, Pending&, const Operand&, int words, Landing landing);

Handler find_lds_exchange(const std::string& name);   // ds_bpermute and friends: no memory is touched
Handler find_lds_atomic_handler(Inst&, const std::string& name);
Handler find_lds_transpose(const std::string& name);

}  // namespace emu
