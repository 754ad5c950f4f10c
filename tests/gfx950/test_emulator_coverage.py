"""Which of gfx950's instructions the emulator executes, and why it does not execute the others."""

import pytest
from opcodes import assemble, examples

from gfx950.decode import decode
from gfx950.emulator.program import Program

# Reason -> beginnings of the mnemonics that are not emulated.
NOT_EMULATED = {
    "scalar stores and atomics: in the assembler's tables, not in CDNA hardware": (
        "s_store_", "s_buffer_store_", "s_scratch_", "s_atomic_", "s_buffer_atomic_", "s_atc_probe", "s_dcache_discard",
    ),
    "typed buffer formats: graphics": ("buffer_load_format_", "buffer_store_format_", "tbuffer_"),
    "trap handler and debugger": ("s_rfe_", "s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join"),
    "global wave sync and ordered append": ("ds_gws_", "ds_ordered_count"),
    "half of v_mfma_scale_*, which is decoded as a whole": ("v_mfma_ld_scale_b32",),
    "graphics": ("v_screen_partition_4se_b32", "v_interp_", "exp"),
    "no compiler emits it": ("ds_condxchg32_rtn_b64",),
}  # fmt: skip


@pytest.fixture(scope="module")
def unimplemented(tmp_path_factory) -> set[str]:
    texts = [found[0] for found in examples().values()]
    lines, _ = assemble(texts, tmp_path_factory.mktemp("asm"))
    program = Program(decode(line for line in lines if line))
    return {inst.base for inst in program.unimplemented}


def test_all_but_the_listed_are_emulated(unimplemented):
    excused = tuple(prefix for prefixes in NOT_EMULATED.values() for prefix in prefixes)
    assert sorted(name for name in unimplemented if not name.startswith(excused)) == []


def test_the_list_of_exceptions_is_not_longer_than_needed(unimplemented):
    known = set(examples()) | {name.removesuffix("_e32") for name in examples()}
    for prefixes in NOT_EMULATED.values():
        for prefix in prefixes:
            here = {name for name in known if name.startswith(prefix)}
            assert not here or any(name.startswith(prefix) for name in unimplemented), prefix
