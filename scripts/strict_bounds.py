"""Derives the bounds of the strict verdict from the measured noise of honest kernels.

    python -m scripts.strict_bounds           measures; rewrites the bounds in reference.py and docs/strict-bounds.md
    python -m scripts.strict_bounds --check   measures; fails if a committed bound does not fit the noise

A bound is SAFETY times the worst error of any row, rounded up to two digits. Other machines sum in another order, so the check
asks only for a bound between MARGINS[0] and MARGINS[1] times what it measures.
"""

import argparse
import math
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

from reference import (
    DISTRIBUTIONS,
    FORMATS,
    ORACLES,
    STRICT_BOUNDS,
    V_HEAD_DIM,
    NoiseBound,
    Oracles,
    RowErrors,
    batches,
    generate_input,
    judge_rows,
)
from scripts.honest_kernels import HonestKernel, honest_kernels
from scripts.wrong_kernels import DAMAGES, MISTAKES
from task import input_t, output_t

ROOT = Path(__file__).resolve().parent.parent
SAFETY = 1.5
MARGINS = (1.2, 2.0)
# Kernels of one group have the same choice of arithmetic, so they share their bounds.
GROUPS = (("bf16",), ("fp8", "mxfp4"))
# The official lengths, and short sequences, where single probabilities count.
SPECS: tuple[dict[str, Any], ...] = (
    {"batchsize": 4, "qseqlen": 1, "kvseqlen": 1024},
    {"batchsize": 1, "qseqlen": 1, "kvseqlen": 8192},
    {"batchsize": 8, "qseqlen": 2, "kvseqlen": 300, "kvmin": 1},
    {"batchsize": 64, "qseqlen": 1, "kvseqlen": 64, "kvmin": 1},
)


class Noise(NamedTuple):
    """The worst errors of any row."""

    rel_l2: float
    one_minus_cosine: float
    element_rms: float
    element_max: float


Measured = dict[tuple[str, str, str], Noise]  # (KV format, kernel, distribution) -> noise, the worst over SPECS


def own_errors(kernel: HonestKernel, data: input_t, output: output_t) -> RowErrors:
    """Distances [rows] of an output from the oracle of what `kernel` reads."""
    oracles, index = Oracles(data), ORACLES.index((kernel.kv_format, kernel.q_format))
    parts = [oracles.errors(output[batch.q_rows].double().reshape(-1, V_HEAD_DIM), batch, index) for batch in batches(data)]
    return RowErrors(*(torch.cat(field) for field in zip(*parts, strict=True)))


def measure_noise() -> Measured:
    measured: Measured = {}
    for seed, spec in enumerate(SPECS):
        for dist in DISTRIBUTIONS:
            data = generate_input(**spec, seed=seed, dist=dist)
            for kv_format in FORMATS:
                for name, kernel in honest_kernels(kv_format).items():
                    errors = own_errors(kernel, data, kernel(data))
                    noise = Noise(*(float(worst.max()) for worst in (errors.rel_l2, 1 - errors.cosine, *errors[2:4])))
                    key = (kv_format, name, dist)
                    measured[key] = Noise(*map(max, noise, measured.get(key, noise)))
    return measured


def worst_noise(measured: Measured) -> dict[str, Noise]:
    """KV format -> the worst noise of the kernels of its group."""
    return {
        kv_format: Noise(*map(max, *(noise for (name, _, _), noise in measured.items() if name in group)))
        for group in GROUPS
        for kv_format in group
    }


def round_up(value: float) -> float:
    """To two significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(round(value / unit, 6)) * unit, 12)


def bound_of(noise: Noise) -> NoiseBound:
    # 1 - cosine grows with the square of an error, so its safety factor does
    return NoiseBound(
        rel_l2=round_up(SAFETY * noise.rel_l2),
        cosine=round(1 - round_up(SAFETY**2 * noise.one_minus_cosine), 12),
        element_rms=round_up(SAFETY * noise.element_rms),
        element_max=round_up(SAFETY * noise.element_max),
    )


def complaints(noise: dict[str, Noise]) -> list[str]:
    """What does not fit between the committed bounds and the measured noise; a line each."""
    lines = []
    for kv_format, worst in noise.items():
        bound = STRICT_BOUNDS[kv_format]
        ratios = {
            "rel_l2": bound.rel_l2 / worst.rel_l2,
            "cosine": math.sqrt((1 - bound.cosine) / worst.one_minus_cosine),
            "element_rms": bound.element_rms / worst.element_rms,
            "element_max": bound.element_max / worst.element_max,
        }
        lines += [
            f"{kv_format} {name}: the bound is {ratio:.2f} times the measured noise, not {MARGINS[0]} to {MARGINS[1]} times; "
            "run python -m scripts.strict_bounds and review the change"
            for name, ratio in ratios.items()
            if not MARGINS[0] <= ratio <= MARGINS[1]
        ]
    return lines


def bounds_source(bounds: dict[str, NoiseBound]) -> str:
    rows = (f'    "{name}": {bound},\n' for name, bound in bounds.items())
    return "STRICT_BOUNDS = {\n" + "".join(rows) + "}\n"


def noise_tables(measured: Measured) -> str:
    """Per KV format the worst relative L2 error of every honest kernel on every distribution."""
    lines = []
    for kv_format in FORMATS:
        lines += [f"| reads {kv_format} | {' | '.join(DISTRIBUTIONS)} |", "|---" * (len(DISTRIBUTIONS) + 1) + "|"]
        for name in honest_kernels(kv_format):
            errors = (f"{measured[kv_format, name, dist].rel_l2:.4f}" for dist in DISTRIBUTIONS)
            lines.append(f"| {name} | {' | '.join(errors)} |")
        lines.append("")
    return "\n".join(lines)


def bounds_table(noise: dict[str, Noise], bounds: dict[str, NoiseBound]) -> str:
    lines = ["| reads | 1 - cosine | relative L2 | element rms | element max |", "|---|---|---|---|---|"]
    for name, worst in noise.items():
        bound = bounds[name]
        pairs = [
            f"{worst.one_minus_cosine:.1e} / {1 - bound.cosine:.1e}",
            f"{worst.rel_l2:.4f} / {bound.rel_l2}",
            f"{worst.element_rms:.4f} / {bound.element_rms}",
            f"{worst.element_max:.3f} / {bound.element_max}",
        ]
        lines.append(f"| {name} | {' | '.join(pairs)} |")
    return "\n".join(lines) + "\n"


def wrong_excess(kvseqlen: int) -> dict[str, float]:
    """Wrong result -> how many times the limit its worst row is off; the least over the KV formats."""
    data = generate_input(2, 1, kvseqlen, seed=0)
    excess: dict[str, float] = {}
    for kv_format in FORMATS:
        kernel = HonestKernel(kv_format, tile=kvseqlen, p_dtype=torch.bfloat16)
        output = kernel(data)
        wrong = {name: damage(output) for name, damage in DAMAGES.items()}
        wrong |= {name: mistake(kernel, data) for name, mistake in MISTAKES.items()}
        for name, result in wrong.items():
            worst = float(judge_rows(data, result)[0].excess.max())
            excess[name] = min(worst, excess.get(name, worst))
    return excess


def wrong_table() -> str:
    lines = ["| wrong result | 1024 keys | 8192 keys |", "|---|---|---|"]
    short, long = wrong_excess(1024), wrong_excess(8192)
    lines += [f"| {name} | {short[name]:.2g} | {long[name]:.2g} |" for name in short]
    return "\n".join(lines) + "\n"


def replace_block(path: Path, name: str, text: str) -> None:
    """Puts `text` between the lines that hold `BEGIN name` and `END name` in a file."""
    pattern = re.compile(rf"(^[^\n]*BEGIN {name}[^\n]*\n).*?(^[^\n]*END {name})", re.DOTALL | re.MULTILINE)
    source = path.read_text()
    if not pattern.search(source):
        raise SystemExit(f"{path.name} has no block BEGIN {name} ... END {name}; restore its marker lines")
    path.write_text(pattern.sub(lambda match: match[1] + text + match[2], source))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the committed bounds with the measured noise")
    check = parser.parse_args().check
    measured = measure_noise()
    noise = worst_noise(measured)
    if check:
        lines = complaints(noise)
        print("\n".join(lines) or "the committed bounds fit the measured noise")
        return 1 if lines else 0
    bounds = {name: bound_of(worst) for name, worst in noise.items()}
    STRICT_BOUNDS.update(bounds)
    page = ROOT / "docs" / "strict-bounds.md"
    replace_block(ROOT / "reference.py", "GENERATED BOUNDS", bounds_source(bounds))
    replace_block(page, "GENERATED BOUNDS", bounds_table(noise, bounds))
    replace_block(page, "GENERATED NOISE", noise_tables(measured))
    replace_block(page, "GENERATED WRONG", wrong_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
