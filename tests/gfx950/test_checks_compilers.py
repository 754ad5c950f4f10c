"""The checks on code that other compilers made: nothing to find, and every wait state they inserted is one the table asks for.

Triton carries a newer LLVM than the tests' clang, so this also compares the hazard table with a second version of it.
"""

from __future__ import annotations

import dataclasses

import pytest

from gfx950 import CodeObject, compile_hip
from gfx950.checks import NOTE, check
from gfx950.effects import Class, classify
from gfx950.examples.scores import SOURCE
from gfx950.hazards import LONGEST_WAIT
from gfx950.mfma import passes
from gfx950.subject import Subject

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from corpus import triton_build, triton_cases  # noqa: E402

pytestmark = pytest.mark.usefixtures("toolchain")

NAMES = (
    "flash-bf16-causal", "flash-fp8-full", "mla-decode-split", "scaled-e4m3-e2m1-64x64-4warps-mfma32", "dot-fp64", "dot-int8",
    "softmax-bf16", "reduce-argmax-axis0-float32-4warps", "scan-cumsum-axis1-int64", "transpose-int8-4warps", "philox",
    "rational-float64", "histogram",
)  # fmt: skip
CASES = {case.name: case for case in triton_cases.CASES}


@pytest.fixture(scope="module", params=NAMES)
def code(request) -> CodeObject:
    case = CASES[request.param]
    problem = case.problem(torch.Generator().manual_seed(0))
    return CodeObject.load(triton_build.build(case, problem).code, name=request.param)


def serious(code: CodeObject) -> list[str]:
    return [str(finding) for finding in check(code) if finding.severity != NOTE]


def test_triton_code_is_clean(code):
    assert serious(code) == []


def test_clang_code_is_clean():
    assert serious(compile_hip(SOURCE)) == []


def without(subject: Subject, index: int) -> Subject:
    """The kernel with one wait state less in the s_nop at `index`; the last one becomes an instruction of no state."""
    inst = subject.instructions[index]
    states = (inst.words[0] & 15) + 1
    shorter = dataclasses.replace(inst, words=(inst.words[0] - 1,)) if states > 1 else None
    changed = Subject(subject.code, subject.kernel)
    instructions = [*subject.instructions[:index], *([shorter] if shorter else []), *subject.instructions[index + 1 :]]
    if not shorter:  # branches go to addresses: whoever jumped to the s_nop now jumps to what follows it
        after = subject.instructions[index + 1].address
        instructions = [dataclasses.replace(i, target=after) if i.target == inst.address else i for i in instructions]
    changed.__dict__["instructions"] = instructions
    return changed


def may_be_llvm_own_caution(subject: Subject, index: int) -> bool:
    """test_hazards.known_difference: after a packed instruction LLVM waits for a hazard that its encoding only resembles.

    And the wait after a 16-pass MFMA is 20 in LLVM's table, of which LONGEST_WAIT asks for 19.
    """
    window = subject.instructions[max(0, index - LONGEST_WAIT) : index]
    after_long_mfma = any(classify(inst) is Class.MFMA and passes(inst) == 16 for inst in window)
    return after_long_mfma or window[-1].mnemonic.startswith("v_pk_")


def test_every_inserted_wait_state_is_needed(code):
    """Take one away, and the table must object."""
    for kernel in code.kernels:
        subject = Subject(code, kernel)
        alive = {inst.address for inst in subject.reachable}
        for index, inst in enumerate(subject.instructions):
            if inst.mnemonic == "s_nop" and inst.address in alive and not may_be_llvm_own_caution(subject, index):
                assert without(subject, index).hazards, (
                    f"{inst.text} at {inst.address:#x} of {code.path} seems not to be needed"
                )
