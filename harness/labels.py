"""Short names of cases."""

from collections.abc import Mapping

SHAPE_KEYS = ("batchsize", "qseqlen", "kvseqlen")


def case_label(spec: Mapping[str, object]) -> str:
    """`4 x 1 x 1024` for an attention case, `key value` for every other key; the seed only if it is alone."""
    shape = " x ".join(str(spec[key]) for key in SHAPE_KEYS) if all(key in spec for key in SHAPE_KEYS) else ""
    shown = {key: value for key, value in spec.items() if key != "seed" and not (shape and key in SHAPE_KEYS)}
    rest = ", ".join(f"{key} {value}" for key, value in shown.items())
    return "  ".join(filter(None, (shape, rest))) or ", ".join(f"{key} {value}" for key, value in spec.items())
