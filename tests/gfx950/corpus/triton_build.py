"""Compiles Triton kernels to gfx950 code objects on a machine without a GPU."""

import warnings
from dataclasses import dataclass

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .case import Argument, Case, Problem

WAVE_SIZE = 64
TARGET = GPUTarget("hip", "gfx950", WAVE_SIZE)

TRITON_TYPES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.uint32: "u32",
    torch.bool: "i1",
}  # fmt: skip


@dataclass(frozen=True)
class Built:
    """A compiled kernel: the code object's bytes and what a launch needs beside it."""

    code: bytes
    name: str
    block: int  # work-items in a workgroup
    lds_bytes: int
    parameters: tuple[str, ...]  # run-time parameters in order; the code object appends scratch pointers to them
    assembly: str


def argument_type(argument: Argument) -> str:
    if isinstance(argument, torch.Tensor):
        return "*" + TRITON_TYPES[argument.dtype]
    return "fp32" if isinstance(argument, float) else "i32"


def alignment(argument: Argument) -> list[list[object]]:
    """What Triton's own launcher would claim: 16-byte pointers to less than 2 GiB, and integers divisible by 16."""
    if isinstance(argument, torch.Tensor):
        return [["tt.divisibility", 16], ["tt.pointer_range", 32]]
    return [["tt.divisibility", 16]] if isinstance(argument, int) and argument % 16 == 0 else []


def build(case: Case, problem: Problem) -> Built:
    """Compiles `case` for the types of `problem`'s arguments. Arguments equal to 1 become constants, as at a real launch."""
    names = case.kernel.arg_names
    ones = {n: 1 for n, a in problem.arguments.items() if isinstance(a, int) and a == 1}
    constants = {**case.constants, **ones}
    signature = {n: "constexpr" if n in constants else argument_type(problem.arguments[n]) for n in names}
    runtime = tuple(n for n in names if n not in constants)
    attributes = {(names.index(n),): alignment(problem.arguments[n]) for n in runtime}
    source = ASTSource(case.kernel, signature, constants, attributes)
    options = {"num_warps": case.num_warps, "enable_fp_fusion": True, **case.options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = triton.compile(source, target=TARGET, options=options)
    metadata = compiled.metadata
    block = WAVE_SIZE * metadata.num_warps
    return Built(compiled.asm["hsaco"], metadata.name, block, metadata.shared, runtime, compiled.asm["amdgcn"])
