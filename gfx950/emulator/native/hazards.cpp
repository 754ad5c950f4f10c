#include "hazards.hpp"

#include "machine.hpp"

namespace emu {

void check_hazard_consumer(Wave& w, const Inst& i) {
  const Program& program = *w.launch->program;
  HazardState& state = w.hazards;
  for (int32_t index : program.hazards_of[i.hazard_consumer]) {
    const HazardPair& pair = program.hazard_pairs[index];
    uint16_t slot = program.code[pair.producer].hazard_producer;
    uint64_t issued = slot < state.issued.size() ? state.issued[slot] : 0;
    if (issued && state.now - issued - 1 < uint64_t(pair.needed))
      report(w, {.kind = FindingKind::Hazard, .detail = index, .address = state.now - issued - 1, .other_inst = pair.producer});
  }
}

void note_hazard_producer(Wave& w, const Inst& i) {
  auto& issued = w.hazards.issued;
  if (issued.size() <= i.hazard_producer) issued.resize(w.launch->program->producer_count + 1);
  issued[i.hazard_producer] = w.hazards.now;
}

static void enter(Program& program, const HazardPair& pair, int32_t index) {
  Inst& consumer = program.code[pair.consumer];
  Inst& producer = program.code[pair.producer];
  if (!consumer.hazard_consumer) {
    if (program.hazards_of.empty()) program.hazards_of.emplace_back();
    consumer.hazard_consumer = uint16_t(program.hazards_of.size());
    program.hazards_of.emplace_back();
  }
  if (!producer.hazard_producer) producer.hazard_producer = uint16_t(++program.producer_count);
  program.hazards_of[consumer.hazard_consumer].push_back(index);
}

void add_hazards(Program& program, const HazardPair* pairs, uint64_t count) {
  for (uint64_t k = 0; k < count; k++) {
    program.hazard_pairs.push_back(pairs[k]);
    enter(program, pairs[k], int32_t(program.hazard_pairs.size() - 1));
  }
}

}  // namespace emu
