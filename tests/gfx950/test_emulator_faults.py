"""Each kind of finding provoked once by a small kernel, with the place that it names; and right kernels that must be clean."""

from dataclasses import replace

import numpy as np
import pytest
from snippets import findings, lanes, run_code, snippet

from gfx950.emulator import Buffer, RawKernarg, Schedule, launch
from gfx950.errors import EmulationFault, UnimplementedOpcode

DATA = np.arange(64, dtype=np.uint32)
LOAD = "v_lshlrev_b32 v5, 2, v0\n global_load_dword v7, v5, s[6:7]\n"


def kinds(body: str, data: np.ndarray = DATA, words: int = 1, **options) -> list[str]:
    return [finding.kind for finding in findings("v_mov_b32 v8, 0\n" + body, data, words, **options)]


FAULTS = {
    "load beyond the buffer": (LOAD.replace("v5, s[6:7]", "v5, s[6:7] offset:4"), "out-of-bounds"),
    "load before the buffer": (LOAD.replace("v5, s[6:7]", "v5, s[6:7] offset:-4"), "out-of-bounds"),
    "store beyond the buffer": ("v_lshlrev_b32 v5, 2, v0\n global_store_dword v5, v0, s[6:7] offset:8", "out-of-bounds"),
    "scalar load beyond the buffer": ("s_load_dwordx2 s[20:21], s[6:7], 0xfc\n s_waitcnt lgkmcnt(0)", "out-of-bounds"),
    "null pointer": ("v_mov_b32 v5, 0\n s_mov_b64 s[6:7], 0\n global_load_dword v7, v5, s[6:7]", "out-of-bounds"),
    "store to a read-only buffer": ("v_lshlrev_b32 v5, 2, v0\n global_store_dword v5, v0, s[0:1]", "read-only-store"),
    "LDS out of bounds": ("v_lshlrev_b32 v5, 2, v0\n ds_write_b32 v5, v0 offset:8", "lds-out-of-bounds"),
    "scratch out of bounds": ("scratch_store_dword off, v0, off offset:64", "scratch-out-of-bounds"),
    "read of a register that is loading": (LOAD + "v_add_u32 v8, 1, v7", "in-flight-read"),
    "overwrite of a register that is loading": (LOAD + "v_mov_b32 v7, 1", "in-flight-write"),
    "wait that covers too little": (
        LOAD + LOAD.replace("v7", "v9") + "s_waitcnt vmcnt(1)\n v_add_u32 v8, 1, v9",
        "in-flight-read",
    ),
    "wait on the wrong counter": (LOAD + "s_waitcnt lgkmcnt(0)\n v_add_u32 v8, 1, v7", "in-flight-read"),
    "scalar load not waited for": ("s_load_dword s20, s[6:7], 0x0\n s_add_u32 s21, s20, 1", "in-flight-read"),
    "scalar loads return in any order": (
        "s_load_dword s20, s[6:7], 0x0\n s_load_dword s21, s[6:7], 0x4\n s_waitcnt lgkmcnt(1)\n s_add_u32 s22, s20, 1",
        "in-flight-read",
    ),
    "LDS read not waited for": (
        "v_lshlrev_b32 v5, 2, v0\n ds_write_b32 v5, v0\n ds_read_b32 v7, v5\n v_add_u32 v8, 1, v7",
        "in-flight-read",
    ),
    "flat load waited for on one counter only": (
        "v_mov_b32 v10, s6\n v_mov_b32 v11, s7\n flat_load_dword v7, v[10:11]\n s_waitcnt vmcnt(0)\n v_add_u32 v8, 1, v7",
        "in-flight-read",
    ),
    "poison stored": ("v_mov_b32 v8, v77", "poison-store"),
    "poison in an address": ("global_load_dword v8, v77, s[6:7]", "poison-address"),
    "poison decides a branch": ("s_cmp_eq_u32 s50, 0\n s_cbranch_scc1 over\n over:", "poison-branch"),
    "poison in VCC decides a branch": ("v_cmp_eq_u32 vcc, v77, v0\n s_nop 4\n s_cbranch_vccz over\n over:", "poison-branch"),
    "poison in EXEC": (
        "v_cmp_lt_u32 vcc, v77, v0\n s_and_saveexec_b64 s[20:21], vcc\n s_mov_b64 exec, s[20:21]",
        "poison-exec",
    ),
    "poison in M0": ("s_mov_b32 m0, s50\n s_nop 0\n global_load_lds_dword v5, s[6:7]", "poison-address"),
    "LDS never written": ("v_lshlrev_b32 v5, 2, v0\n ds_read_b32 v8, v5", "poison-store"),
    "LDS-DMA not waited for": (
        "v_lshlrev_b32 v5, 2, v0\n s_mov_b32 m0, 0\n s_nop 0\n global_load_lds_dword v5, s[6:7]\n ds_read_b32 v8, v5",
        "lds-dma-in-flight",
    ),
    "trap": ("s_trap 2", "trap"),
    "jump into nowhere": ("s_mov_b64 s[20:21], 64\n s_setpc_b64 s[20:21]", "bad-pc"),
    "endless loop": ("again:\n s_branch again", "runaway"),
    "not emulated": ("s_rfe_b64 s[4:5]", "unimplemented"),
    "hazard": ("v_cmp_eq_u32 vcc, v0, v0\n v_cndmask_b32 v8, 0, 1, vcc", "hazard"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name):
    body, kind = FAULTS[name]
    if name == "poison in M0":
        body = "v_lshlrev_b32 v5, 2, v0\n" + body
    found = kinds(body, lds=256, scratch=64, budget=100_000)
    assert found, "no finding"
    assert found[0] == kind


def test_a_strict_launch_raises_the_first_finding_with_both_sites():
    with pytest.raises(EmulationFault) as caught:
        lanes(LOAD + "v_add_u32 v8, 1, v7", DATA)
    finding = caught.value.facts["finding"]
    assert finding.kind == "in-flight-read"
    assert finding.instruction == "v_add_u32_e32 v8, 1, v7"
    assert finding.other_pc == finding.pc - 8
    assert "global_load_dword v7, v5, s[6:7]" in str(caught.value)


def test_an_unimplemented_opcode_names_itself():
    with pytest.raises(UnimplementedOpcode, match=r"s_rfe_b64.*at 0x"):
        lanes("v_mov_b32 v8, 0\n s_rfe_b64 s[4:5]")


def test_out_of_bounds_names_buffer_lane_and_address():
    (finding, *_) = findings("v_lshlrev_b32 v5, 3, v0\n global_load_dword v8, v5, s[6:7]", DATA)
    assert (finding.kind, finding.buffer, finding.lane) == ("out-of-bounds", "data", 32)
    assert "byte 256 of data, which has 256 bytes" in finding.message


def test_findings_at_one_place_are_counted():
    found = findings("v_mov_b32 v8, 0\n v_lshlrev_b32 v5, 3, v0\n global_load_dword v7, v5, s[6:7]", DATA)
    assert [(f.kind, f.count) for f in found] == [("out-of-bounds", 32)]


CLEAN = {
    "loads to one register return in order": LOAD + LOAD + "s_waitcnt vmcnt(0)\n v_mov_b32 v8, v7",
    "a wait that covers just enough": (
        LOAD + LOAD.replace("v7", "v9") + "s_waitcnt vmcnt(1)\n v_mov_b32 v8, v7\n s_waitcnt vmcnt(0)"
    ),
    "LDS operations return in order": (
        "v_lshlrev_b32 v5, 2, v0\n ds_write_b32 v5, v0\n ds_read_b32 v7, v5\n ds_read_b32 v9, v5\n"
        "s_waitcnt lgkmcnt(1)\n v_mov_b32 v8, v7"
    ),
    "poison that a select leaves out": "v_cmp_eq_u32 vcc, v0, v0\n s_nop 4\n v_cndmask_b32 v8, v77, v0, vcc",
    "poison in lanes that are off": (
        "s_mov_b64 exec, 1\n s_nop 4\n v_mov_b32 v8, 3\n s_mov_b64 exec, 2\n v_mov_b32 v9, v77\n s_mov_b64 exec, -1"
    ),
    "poison that a mask removes": "v_and_b32 v8, 0, v77",
    "loads beyond vmcnt's limit stall": (
        "v_lshlrev_b32 v5, 2, v0\n"
        + "".join(f"global_load_dword v{20 + k}, v5, s[6:7]\n" for k in range(70))
        + "v_mov_b32 v8, v22\n s_waitcnt vmcnt(0)"
    ),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name):
    assert kinds(CLEAN[name], lds=256) == []


def test_an_endless_loop_names_its_place():
    (finding,) = findings("v_mov_b32 v8, 0\n again:\n s_nop 0\n s_branch again", DATA, budget=5000)
    assert finding.kind == "runaway"
    assert finding.instruction in ("s_nop 0", "s_branch again")
    assert "an endless loop around `s_branch again`" in finding.message


# Memory operations take effect only when they are waited for, and waves do not pause there.
SLOW = replace(Schedule.round_robin(1), stalls=False)


def test_a_late_load_sees_what_others_stored_meanwhile():
    """Two waves: one loads, the other stores to the same place; a prompt load wins, a late one loses."""
    body = """
      v_lshlrev_b32 v5, 2, v0
      s_cmp_eq_u32 s2, 0
      s_cbranch_scc0 second
      global_load_dword v8, v5, s[6:7]
      s_nop 15
      s_nop 15
      s_waitcnt vmcnt(0)
      s_branch done
    second:
      v_mov_b32 v8, 500
      global_store_dword v5, v8, s[6:7]
      s_waitcnt vmcnt(0)
    done:
    """
    late, _ = run_code(snippet(body), DATA.copy(), grid=2, schedule=SLOW)
    early, _ = run_code(snippet(body), DATA.copy(), grid=2, schedule=Schedule.round_robin(1).prompt())
    assert set(late[0, :, 0]) == {500}
    assert np.array_equal(early[0, :, 0], DATA)


def test_posted_stores_leave_when_waited_for():
    """A store without a wait is not visible to a wave that learns of it through an atomic."""
    flag = np.zeros(65, np.uint32)
    body = """
      v_mov_b32 v5, 0
      v_mov_b32 v6, 1
      s_cmp_eq_u32 s2, 0
      s_cbranch_scc0 reader
      v_mov_b32 v8, 42
      global_store_dword v5, v8, s[6:7]
      {wait}
      global_atomic_add v5, v6, s[6:7] offset:256
      s_movk_i32 s20, 100
    busy:
      s_sub_u32 s20, s20, 1
      s_cbranch_scc0 busy
      s_branch done
    reader:
      v_mov_b32 v7, 0
      global_atomic_add v9, v5, v7, s[6:7] offset:256 sc0
      s_waitcnt vmcnt(0)
      v_readfirstlane_b32 s20, v9
      s_cmp_eq_u32 s20, 0
      s_cbranch_scc1 reader
      global_load_dword v8, v5, s[6:7]
      s_waitcnt vmcnt(0)
    done:
    """
    run = lambda wait: run_code(snippet(body.format(wait=wait)), flag.copy(), grid=2, schedule=SLOW)[0][1, 0, 0]  # noqa: E731
    assert run("s_waitcnt vmcnt(0)") == 42
    assert run("") == 0


def test_races_need_two_waves_and_no_barrier():
    body = """
      v_lshlrev_b32 v5, 2, v0
      ds_write_b32 v5, v0
      s_waitcnt lgkmcnt(0)
      {barrier}
      v_xor_b32 v6, 0x100, v5
      ds_read_b32 v8, v6
    """
    code = {barrier: snippet(body.format(barrier=barrier), lds=512) for barrier in ("s_barrier", "s_nop 0")}

    def run(barrier: str):
        out = np.zeros(64 * 8, np.uint32)
        kernarg = RawKernarg(bytes(16), {0: Buffer(out, "out"), 8: Buffer(DATA, "data")})
        return launch(code[barrier], grid=1, block=128, args=kernarg, strict=False, schedule=Schedule.to_barrier()).findings

    assert run("s_barrier") == []
    races = {f.instruction.split()[0]: f.message for f in run("s_nop 0") if f.kind == "lds-race"}
    assert "which wave 0 wrote with no barrier between: `ds_write_b32" in races["ds_read_b32"]
    assert "which wave 0 read with no barrier between: `ds_read_b32" in races["ds_write_b32"]


def test_a_barrier_does_not_wait_for_lds_operations():
    """A store that its wave has not waited for may land after the barrier."""
    body = "v_lshlrev_b32 v5, 2, v0\n ds_write_b32 v5, v0\n s_barrier\n v_xor_b32 v6, 0x100, v5\n ds_read_b32 v8, v6"
    out = np.zeros(64 * 8, np.uint32)
    kernarg = RawKernarg(bytes(16), {0: Buffer(out, "out"), 8: Buffer(DATA, "data")})
    run = launch(snippet(body, lds=512), grid=1, block=128, args=kernarg, strict=False)
    assert "lds-race" in [finding.kind for finding in run.findings]


def test_registers_beyond_the_allocation():
    found = findings("v_mov_b32 v8, 0\n v_mov_b32 v130, 0\n v_accvgpr_write_b32 a127, 0", DATA)
    assert [(f.kind, "v130" in f.message) for f in found] == [("register-range", True)]
