// What other parts need to know of vector instructions.
#pragma once
#include <string>

#include "program.hpp"

namespace emu {

Handler find_lane_op(const std::string& name);  // moves between lanes and register files
int matrix_words(const arith::Op&, const arith::Modifiers&, int source);
void prepare_dpp(Inst&);

}  // namespace emu
