// The switches that ROCm's device libraries (ocml.bc, ockl.bc) read as constants, which ROCm ships as separate bitcode files.
// https://github.com/ROCm/llvm-project/blob/amd-staging/amd/device-libs/doc/OCML.md, section "Controls"
#pragma once
#define GFX950_OPTION(type, name, value) \
  extern "C" __attribute__((constant, weak, visibility("hidden"))) const type name = value;
GFX950_OPTION(int, __oclc_ABI_version, 600)
GFX950_OPTION(int, __oclc_ISA_version, 9500)
GFX950_OPTION(unsigned char, __oclc_wavefrontsize64, 1)
GFX950_OPTION(unsigned char, __oclc_finite_only_opt, 0)
GFX950_OPTION(unsigned char, __oclc_unsafe_math_opt, 0)
GFX950_OPTION(unsigned char, __oclc_daz_opt, 0)
GFX950_OPTION(unsigned char, __oclc_correctly_rounded_sqrt32, 1)
#undef GFX950_OPTION
