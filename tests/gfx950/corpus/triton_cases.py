"""Every Triton case of the corpus, by family."""

from . import attention, data, dot, dot_scaled, rowwise

FAMILIES = {
    "matrix products": dot.CASES,
    "block-scaled matrix products": dot_scaled.CASES,
    "reductions, scans, normalisations": rowwise.CASES,
    "data movement, atomics, integers, conversions, functions": data.CASES,
    "attention": attention.CASES,
}
CASES = [case for cases in FAMILIES.values() for case in cases]
