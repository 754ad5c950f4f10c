"""Runs the corpus through Triton's own interpreter: `python triton_interpreter.py` prints one JSON line a case.

An executor that shares nothing with the emulator: it checks the expected values and their bounds, not machine code.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from corpus.case import Case, Problem, compare
from corpus.triton_cases import CASES
from triton.runtime.errors import InterpreterError

NARROW_FLOATS = {torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}


def interpretable(case: Case, problem: Problem) -> bool:
    """The interpreter multiplies bf16 as 16-bit integers and truncates when it converts to bf16 and fp8."""
    types = {a.dtype for a in problem.arguments.values() if isinstance(a, torch.Tensor)}
    outputs = {problem.arguments[name].dtype for name in problem.expected}
    if case.name == "flash-fp8-full":  # its weights are converted to fp8
        return False
    return case.name.startswith("scaled-") or not (torch.bfloat16 in types or outputs & NARROW_FLOATS)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for case in CASES:
        problem = case.problem(torch.Generator().manual_seed(7))
        if not interpretable(case, problem):
            continue
        try:
            case.kernel[problem.grid](**problem.arguments, **case.constants)
        except InterpreterError as error:  # its own limits, which change from version to version
            print(f"{case.name}: {error}", file=sys.stderr)
            continue
        wrong = [str(d) for n, e in problem.expected.items() if not (d := compare(n, problem.arguments[n], e)).ok]
        print(json.dumps({"name": case.name, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main()
