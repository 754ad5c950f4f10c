"""Mistakes put into the NVFP4 HIP kernel on purpose: the emulation notices each."""

import pytest
from nvfp4_cases import make_input

pytest.importorskip("gfx950")

from gfx950 import compile_hip
from kernels.nvfp4_msa.hip_backend import HIP_TRAITS_OF_MODULE, device_source
from scripts.nvfp4_emulation import emulate, instantiation

MISTAKES = {
    "a block is read before it has arrived": ("        wait_all_but<kAhead - 1>();\n", ""),
    "a block is overwritten before it is read": ("      free = block;\n", "      free = &shared->ring[0];\n"),
    "one token too many": ("if (16 * b + i >= left)", "if (16 * b + i > left)"),
    "V scales behind the end stay": ("if (visible < kWaveTokens) word =", "if (false) word ="),
    "waves are merged before they have written": ("  barrier();\n  const Destination", "  const Destination"),
    "partial rows may come after the ticket": ('__builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");', ""),
    "the counter is not reset": ("__hip_atomic_store(counter, 0u,", "__hip_atomic_store(counter, 1u,"),
    "the row's own block is left out": ("(u32)block <= (u32)own_block", "(u32)block < (u32)own_block"),
    "V scales in another order": ("place = scale * 64 + quad % 4 * 16", "place = scale * 64 + quad / 2 * 16"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_emulation_notices_mistakes(mistake):
    right, wrong = MISTAKES[mistake]
    source, traits = device_source(), HIP_TRAITS_OF_MODULE[0]
    assert source.count(right) == 1
    code = compile_hip(source.replace(right, wrong) + instantiation(traits))
    data = make_input(batchsize=1, kvseqlen=2000, topk=16)
    assert not emulate(data, traits, 2, code=code, lds_fills=("nan",)).verdict.ok
