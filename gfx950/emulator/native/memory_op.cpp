#include "memory_op.hpp"

#include <algorithm>
#include <cstring>

namespace emu {
namespace {

struct Width {
  const char* name;
  uint8_t bytes, words;
  bool sign;
  Landing landing;
};
constexpr Width kLoads[] = {
    {"ubyte", 1, 1, false, Landing::Whole}, {"sbyte", 1, 1, true, Landing::Whole}, {"ushort", 2, 1, false, Landing::Whole},
    {"sshort", 2, 1, true, Landing::Whole}, {"dword", 4, 1, false, Landing::Whole}, {"dwordx2", 8, 2, false, Landing::Whole},
    {"dwordx3", 12, 3, false, Landing::Whole}, {"dwordx4", 16, 4, false, Landing::Whole},
    {"ubyte_d16", 1, 1, false, Landing::Low16}, {"ubyte_d16_hi", 1, 1, false, Landing::High16},
    {"sbyte_d16", 1, 1, true, Landing::Low16}, {"sbyte_d16_hi", 1, 1, true, Landing::High16},
    {"short_d16", 2, 1, false, Landing::Low16}, {"short_d16_hi", 2, 1, false, Landing::High16},
};
constexpr Width kStores[] = {
    {"byte", 1, 1, false, Landing::None}, {"short", 2, 1, false, Landing::None}, {"dword", 4, 1, false, Landing::None},
    {"dwordx2", 8, 2, false, Landing::None}, {"dwordx3", 12, 3, false, Landing::None}, {"dwordx4", 16, 4, false, Landing::None},
};

template <size_t N> const Width* find_width(const Width (&widths)[N], const std::string& name) {
  auto at = std::find_if(widths, widths + N, [&](const Width& width) { return name == width.name; });
  return at == widths + N ? nullptr : at;
}

bool strip(std::string& text, const char* prefix) {
  if (text.rfind(prefix, 0) != 0) return false;
  text.erase(0, strlen(prefix));
  return true;
}
bool strip_end(std::string& text, const std::string& suffix) {
  if (!text.ends_with(suffix)) return false;
  text.resize(text.size() - suffix.size());
  return true;
}

std::optional<MemoryOp> parse_load(std::string name, bool lds) {
  MemoryOp op;
  op.access = strip(name, "lds_") || lds ? Access::LoadLds : Access::Load;
  const Width* width = find_width(kLoads, name);
  if (!width) return {};
  op.bytes = width->bytes, op.words = width->words, op.sign = width->sign;
  op.landing = op.access == Access::Load ? width->landing : Landing::None;
  return op;
}

std::optional<MemoryOp> parse_store(std::string name) {
  MemoryOp op;
  op.access = Access::Store;
  op.high_half = strip_end(name, "_d16_hi");
  const Width* width = find_width(kStores, name);
  if (!width) return {};
  op.bytes = width->bytes, op.words = width->words, op.landing = Landing::None;
  return op;
}

std::optional<MemoryOp> parse_atomic(const std::string& name, bool returns) {
  auto atomic = find_global_atomic(name);
  if (!atomic) return {};
  MemoryOp op;
  op.access = Access::Atomic;
  op.atomic = *atomic;
  op.bytes = atomic->bytes;
  op.words = uint8_t(atomic->bytes / 4);
  op.landing = returns ? Landing::Whole : Landing::None;
  return op;
}

}  // namespace

std::optional<MemoryOp> parse_memory_op(std::string name, bool lds, bool returns) {
  Segment segment;
  if (strip(name, "global_")) segment = Segment::Global;
  else if (strip(name, "flat_")) segment = Segment::Flat;
  else if (strip(name, "scratch_")) segment = Segment::Scratch;
  else if (strip(name, "buffer_")) segment = Segment::Buffer;
  else return {};
  std::optional<MemoryOp> op;
  if (strip(name, "load_")) op = parse_load(name, lds);
  else if (strip(name, "store_")) op = parse_store(name);
  else if (strip(name, "atomic_")) op = parse_atomic(name, returns);
  if (op) op->segment = segment;
  return op;
}

}  // namespace emu
