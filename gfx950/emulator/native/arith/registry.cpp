// All operations by name.
#include <string_view>
#include <unordered_map>

#include "family.hpp"

namespace arith {
namespace {

OpList collect() {
  OpList all;
  for (auto family : {integer_ops, integer16_ops, bit_ops, sad_ops, carry_ops, float32_ops, float16_ops, float64_ops,
                      division_ops, transcendental_ops, compare_ops, packed_ops, dot_ops, convert_ops,
                      convert_scale_ops, mfma_ops}) {
    OpList ops = family();
    all.insert(all.end(), ops.begin(), ops.end());
  }
  return all;
}

const OpList& all_ops() {
  static const OpList ops = collect();
  return ops;
}

}  // namespace

const Op* find(const char* name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const Op*> map;
    for (const Op& op : all_ops()) map.emplace(op.name, &op);
    return map;
  }();
  const auto it = by_name.find(name);
  return it == by_name.end() ? nullptr : it->second;
}

int op_count() { return static_cast<int>(all_ops().size()); }
const Op& op_at(int index) { return all_ops()[static_cast<size_t>(index)]; }

}  // namespace arith
