// Rules by which poison travels through operations, more exact than "any poisoned bit poisons the result".
#pragma once
#include "arith.hpp"

namespace arith::poison {

// d = a bitwise function of up to three sources, given as v_bitop3 gives it: bit (4 s0 + 2 s1 + s2) of the table. A result
// bit is poison if a change of poisoned source bits can change it: x & 0 is clean whatever x is.
template <uint8_t Table> void bitwise(const Op&, Lanes* shadow, const Operands&, const Modifiers&);
void bitop3(const Op&, Lanes* shadow, const Operands&, const Modifiers&);

// d moves, copies or inverts bits of its data sources as its control sources say (shifts, permutes, extracts). DataMask
// says which sources are data; a poisoned control bit poisons everything.
template <int DataMask> void moved(const Op&, Lanes* shadow, const Operands&, const Modifiers&);

// Sums and products of Bits bits: result bits below the lowest poisoned source bit are clean.
template <int Bits> void upward(const Op&, Lanes* shadow, const Operands&, const Modifiers&);
void lshl_add(const Op&, Lanes* shadow, const Operands&, const Modifiers&);
void lshl_or(const Op&, Lanes* shadow, const Operands&, const Modifiers&);

// Packed operations: the halves (or words) of the result depend on the selected halves (words) alone.
void packed_halves(const Op&, Lanes* shadow, const Operands&, const Modifiers&);
void packed_words(const Op&, Lanes* shadow, const Operands&, const Modifiers&);
// Source 0 makes the low half of the result, source 1 the high half (v_cvt_pk_bf16_f32).
void half_per_source(const Op&, Lanes* shadow, const Operands&, const Modifiers&);
// v_cndmask_b32: the chosen source's poison.
void select(const Op&, Lanes* shadow, const Operands&, const Modifiers&);
// Any poisoned bit that is read poisons everything that is written.
void any(const Op&, Lanes* shadow, const Operands&, const Modifiers&);

}  // namespace arith::poison
