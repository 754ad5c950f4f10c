// The functions that Python calls through ctypes (gfx950/emulator/executor.py).
#include <cstring>

#include "machine.hpp"

using namespace emu;

#define EXPORT __attribute__((visibility("default")))

extern "C" {

struct LaunchResult {
  Launch* launch;
  uint64_t finding_count;
  const Finding* findings;
  const uint64_t* executed;  // per instruction
  Counters counters;
};

EXPORT Program* emu_program_create(const Record* records, uint64_t count, const char* const* names, uint64_t name_count) {
  auto* program = new Program;
  program->names.assign(names, names + name_count);
  program->code.resize(count + 1);
  program->first_pc = count ? records[0].pc : 0;
  uint64_t end = count ? records[count - 1].pc + records[count - 1].size : 0;
  program->index_of_word.assign((end - program->first_pc) / 4, -1);
  for (uint64_t k = 0; k < count; k++) {
    Inst& inst = program->code[k];
    static_cast<Record&>(inst) = records[k];
    program->index_of_word[(inst.pc - program->first_pc) / 4] = int32_t(k);
    prepare(*program, inst);
  }
  program->code[count].run = run_off_the_end;
  return program;
}

EXPORT void emu_program_add_hazards(Program* program, const HazardPair* pairs, uint64_t count) { add_hazards(*program, pairs, count); }

EXPORT void emu_program_destroy(Program* program) { delete program; }

// 1 for every instruction without an implementation.
EXPORT const uint8_t* emu_program_unimplemented(const Program* program) { return program->unimplemented.data(); }

EXPORT void emu_launch(const Program* program, const LaunchConfig* config, Buffer* buffers, uint64_t buffer_count, LaunchResult* result) {
  auto* launch = new Launch(program, *config, buffers, int(buffer_count));
  launch->findings.strict = config->strict;
  run(*launch);
  result->launch = launch;
  result->finding_count = launch->findings.all().size();
  result->findings = launch->findings.all().data();
  result->executed = launch->executed.data();
  result->counters = launch->counters;
}

EXPORT void emu_launch_destroy(LaunchResult* result) { delete result->launch; }
}
