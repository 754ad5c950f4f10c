// Wait states that software must leave between dependent instructions (no interlock in hardware).
#pragma once
#include <cstdint>

namespace emu {
struct Wave;
struct Inst;
struct HazardState {};
inline void check_hazards(Wave&, const Inst&) {}
}  // namespace emu
