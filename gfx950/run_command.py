"""`python -m gfx950 run`: a kernel in the emulator with arguments from the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .codeobject import CodeObject
from .emulator import Verdict, verify
from .emulator.estimate import estimate
from .errors import BadArgumentText, SaveFailed

DTYPES: Mapping[str, Any] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8,
    "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8,
}  # fmt: skip
FORMS = "FILE.npy, zeros:f32:16x64, random:bf16:16x32, range:i32:256, or a number (1 for an integer, 1.0 for a float)"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--grid", type=_sizes, default=(1, 1, 1), metavar="X[,Y,Z]", help="workgroups (default 1)")
    parser.add_argument("--block", type=_sizes, required=True, metavar="X[,Y,Z]", help="work-items of a workgroup")
    parser.add_argument("--arg", dest="args", action="append", default=[], metavar="SPEC", help=f"next argument: {FORMS}")
    parser.add_argument("--dynamic-lds", type=at_least(0), default=0, metavar="BYTES", help="LDS that the launch adds")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of random: arguments (default 0)")
    parser.add_argument(
        "--save", type=Path, metavar="FILE.npz", help="write the arrays as the first run left them: arg0, arg1, ..."
    )


def at_least(lowest: int) -> Callable[[str], int]:
    """Reads an integer option that may not be smaller."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?\d+", text) or int(text) < lowest:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {lowest}")
        return int(text)

    return read


def _sizes(text: str) -> tuple[int, int, int]:
    if not re.fullmatch(r"\d+(,\d+){0,2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not X, X,Y or X,Y,Z")
    x, y, z = ([int(part) for part in text.split(",")] + [1, 1])[:3]
    return x, y, z


def parse_argument(text: str, random: np.random.Generator) -> Any:
    """One kernel argument: an array for a pointer, a number for the rest. Raises BadArgumentText."""
    if text.endswith(".npy"):
        return _load(text)
    if found := re.fullmatch(r"(zeros|random|range):(\w+):(\d+(?:x\d+)*)", text):
        kind, dtype, shape = found.groups()
        if dtype not in DTYPES:
            raise BadArgumentText(text=text, problem=f"no type {dtype}; there are {', '.join(DTYPES)}")
        try:
            return _make(kind, DTYPES[dtype], tuple(map(int, shape.split("x"))), random)
        except (MemoryError, ValueError):
            raise BadArgumentText(text=text, problem="more than memory holds; a smaller shape") from None
    for number in (lambda: int(text, 0), lambda: float(text)):
        try:
            return number()
        except ValueError:
            continue
    raise BadArgumentText(text=text, problem=f"write {FORMS}")


def _load(text: str) -> np.ndarray:
    try:
        array = np.load(text)
    except (OSError, EOFError, ValueError) as error:
        raise BadArgumentText(text=text, problem=str(error)) from None
    if not isinstance(array, np.ndarray):
        raise BadArgumentText(text=text, problem="holds several arrays; save one with np.save")
    return np.ascontiguousarray(array)


def _make(kind: str, dtype: Any, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """random: standard normal, for integers uniform over all values."""
    if kind == "zeros":
        return np.zeros(shape, dtype)
    if kind == "range":
        return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return random.standard_normal(shape).astype(dtype)


def run(code: CodeObject, options: argparse.Namespace) -> Verdict:
    """Every schedule and LDS fill; the result is compared with nothing, so the verdict is about findings alone."""
    random = np.random.default_rng(options.seed)
    args = [parse_argument(text, random) for text in options.args]
    launch = {"grid": options.grid, "block": options.block, "lds_bytes": options.dynamic_lds}
    verdict = verify(code, options.kernel, args=args, **launch)
    if options.save:
        values = enumerate(verdict.runs[0].args)
        arrays: dict[str, Any] = {f"arg{k}": _plain(value) for k, value in values if isinstance(value, np.ndarray)}
        _save(options.save, arrays)
    return verdict


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    try:
        np.savez(path, **arrays)
    except OSError as error:
        raise SaveFailed(path=path, reason=error.strerror) from None


def _plain(array: np.ndarray) -> np.ndarray:
    """Types that .npy files do not know (bf16, fp8) as unsigned integers of their size."""
    return array if array.dtype.kind in "fiu" else array.view(f"u{array.dtype.itemsize}")


def as_text(verdict: Verdict) -> str:
    counters = verdict.runs[0].counters
    lines = [str(verdict), "  " + "  ".join(f"{name} {count}" for name, count in counters.by_class.items())]
    for name, traffic in counters.buffers.items():
        lines.append(f"  {name}: {traffic.unique_load} B read, {traffic.unique_store} B written (each byte once)")
    return "\n".join([*lines, f"  {estimate(counters)}"])


def as_json(verdict: Verdict) -> dict[str, object]:
    """`findings` as the emulator's Finding, counters of the first run."""
    counters = verdict.runs[0].counters
    bound = estimate(counters)
    return {
        "ok": verdict.ok,
        "kernel": verdict.kernel,
        "runs": [
            {"schedule": run.schedule.name, "lds_fill": run.lds_fill, "findings": len(run.findings)} for run in verdict.runs
        ],
        "findings": [vars(finding) for finding in verdict.findings],
        "instructions": counters.by_class,
        "estimate": {"lower_bound_ns": bound.lower_bound_ns, "bound": bound.bound, "by_resource_ns": bound.by_resource},
    }
