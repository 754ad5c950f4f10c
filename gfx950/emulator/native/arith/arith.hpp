// Arithmetic of gfx950's vector ALU and matrix cores on the 64 lanes of a wave.
//
// Nothing here knows registers, EXEC, memory or instruction encodings: the executor fetches the sources (literals and
// inline constants expanded by `Op::src_type`, DPP and SDWA selects applied), calls one function, and writes the result
// under EXEC. Source modifiers (neg, abs, op_sel, op_sel_hi), clamp and omod are applied here, because only the operation
// knows which type they act on.
#pragma once
#include <cstdint>

namespace arith {

constexpr int kLanes = 64;
using Lanes = uint32_t[kLanes];  // one 32-bit register of a wave; wider values are consecutive Lanes, low word first

// Floating-point mode of the wave, as the MODE register encodes it.
struct Mode {
  uint8_t round32 = 0;         // f32 results: 0 nearest even, 1 towards +inf, 2 towards -inf, 3 towards zero
  uint8_t round16_64 = 0;      // the same for f16 and f64
  uint8_t fp32_denorm = 3;     // bit 0: input denormals kept, bit 1: output denormals kept
  uint8_t fp16_64_denorm = 3;  // the same for f16 and f64
  bool dx10_clamp = true;      // clamp turns NaN into 0
  bool ieee = true;            // minimum and maximum quieten signalling NaN inputs
  bool fp16_overflow = false;  // FP16_OVFL: f16, fp8 and bf8 results that overflow become the largest finite number
};

// Modifiers of one instruction; bit i belongs to source i.
struct Modifiers {
  uint8_t neg = 0;        // VOP3 neg, or VOP3P neg_lo
  uint8_t abs = 0;        // VOP3 abs
  uint8_t neg_hi = 0;     // VOP3P neg_hi (v_fma_mix*: the abs bits)
  uint8_t op_sel = 0;     // bits 11..14 of a VOP3/VOP3P encoding: bit 3 is the destination's half
  uint8_t op_sel_hi = 7;  // VOP3P only: the half of source i that feeds the high result
  uint8_t omod = 0;       // 0 none, 1 times 2, 2 times 4, 3 divided by 2
  bool clamp = false;
  uint8_t cbsz = 0, abid = 0, blgp = 0;  // MFMA only; f64 MFMA: blgp holds neg
  uint8_t bitop3 = 0;                    // truth table of v_bitop3_*
};

// How a source operand reads constants: 1.0 as an inline constant is 0x3c00 for F16, 0x3f800000 for B32 ...
// Mix: F16 if the op_sel_hi bit of the source is set, else F32 (v_fma_mix*).
enum class SrcType : uint8_t { None, B16, F16, BF16, B32, F32, B64, F64, PackedB16, PackedF16, PackedBF16, PackedF32, Wide, Mix };

enum class Kind : uint8_t {
  Lane,     // d = f(s0, s1, s2)
  Mask,     // d and / or a 64-bit lane mask, from sources and possibly a lane mask: carries, v_cndmask, v_div_scale/fmas
  Compare,  // a 64-bit lane mask from two sources: v_cmp*, v_cmpx*
  Mfma,     // v_mfma*, v_smfmac*: whole-wave matrix operation that ignores EXEC
};

// Every function computes all 64 lanes. `d` holds the old destination on entry if Op::reads_dst. `d` must not overlap a source.
using LaneFn = void (*)(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, const Modifiers&, const Mode&);
using MaskFn = uint64_t (*)(Lanes* d, const Lanes* s0, const Lanes* s1, const Lanes* s2, uint64_t mask, const Modifiers&,
                            const Mode&);
using CompareFn = uint64_t (*)(const Lanes* s0, const Lanes* s1, const Modifiers&, const Mode&);

// The values and the shadows (bit set = that bit is poison) of an operation's sources; `dst` is the old destination,
// needed when Op::reads_dst. Unused pointers are null.
struct Operands {
  const Lanes* value[3] = {};
  const Lanes* shadow[3] = {};
  const Lanes* dst_shadow = nullptr;
  uint64_t mask = 0, mask_shadow = 0;  // Kind::Mask with mask_in
};
struct Op;
using ShadowFn = void (*)(const Op&, Lanes* shadow, const Operands&, const Modifiers&);
using BitMaskFn = uint32_t (*)(int source, const Modifiers&);

// Element types of matrix operands.
enum class Element : uint8_t { F64, F32, F16, BF16, I8, FP8, BF8, F8F6F4 };
struct MfmaShape {
  uint8_t m, n, k, blocks;
  Element a, b;
  bool sparse;  // v_smfmac: A holds half of k, chosen by the index operand
  bool scaled;  // v_mfma_scale: two more operands with E8M0 block scales
};

struct Op {
  const char* name;  // mnemonic without _e32, _e64, _sdwa, _dpp
  Kind kind;
  uint8_t dst_words;     // 0 for Compare
  uint8_t src_count;     // sources proper: a carry-in mask, v_div_fmas's VCC and MFMA scales are not counted
  uint8_t src_words[3];  // F8F6F4 matrix operands: 8, though 6 or 4 are read for 6-bit or 4-bit formats
  SrcType src_type[3];
  bool reads_dst;            // v_fmac, v_dot*c, and all that can leave some bits of the destination alone
  bool mask_in, mask_out;    // Kind::Mask
  LaneFn lane;               // Kind::Lane
  MaskFn mask;               // Kind::Mask
  CompareFn compare;         // Kind::Compare
  MfmaShape mfma;            // Kind::Mfma
  ShadowFn shadow;           // exact poison rule; null = any poisoned bit that is read poisons all that is written
  BitMaskFn read_mask;       // bits of each word of source i that are read; null = all
  BitMaskFn write_mask;      // bits of each destination word that are written (source is ignored); null = all
};

// The operation of a base mnemonic, or null. v_readlane, v_writelane, v_readfirstlane, v_permlane*_swap, v_swap_b32,
// v_accvgpr_*, v_nop and friends move data between lanes or registers and belong to the executor.
const Op* find(const char* name);
int op_count();
const Op& op_at(int index);  // every operation, for listings and tests

// Matrix operation. For v_smfmac `c` is the old destination and `extra0` the sparsity index; for v_mfma_scale `extra0` and
// `extra1` are the scale registers of A and B; otherwise both are null. `d` may be the same array as `c`.
void mfma(const Op&, Lanes* d, const Lanes* a, const Lanes* b, const Lanes* c, const Lanes* extra0, const Lanes* extra1,
          const Modifiers&, const Mode&);
// Poison of a matrix operation: an element of D is poison if anything in its row of A, its column of B, their scales or
// its own element of C is. Null pointers mean "not poisoned".
void mfma_shadow(const Op&, Lanes* d, const Lanes* a, const Lanes* b, const Lanes* c, const Lanes* extra0,
                 const Lanes* extra1, const Modifiers&);

// Poison of a Kind::Lane or Kind::Mask result.
void shadow(const Op&, Lanes* shadow, const Operands&, const Modifiers&);
// Lanes whose compare or carry-out bit is poison: those that read any poisoned bit.
uint64_t poisoned_lanes(const Op&, const Operands&, const Modifiers&);

}  // namespace arith
