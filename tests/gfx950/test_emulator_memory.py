"""Global, flat, scratch and buffer memory: widths, halves, offsets, ranges, atomics."""

import ml_dtypes
import numpy as np
import pytest
from snippets import findings, lanes, run_code, snippet

LANE = np.arange(64)
OLD = 0xA5A5C3C3
DATA = np.random.default_rng(950).integers(0, 256, 4096, np.uint8)


def at(offset: np.ndarray, kind: str) -> np.ndarray:
    """Values of dtype `kind` at byte offsets of DATA, as int64."""
    size = np.dtype(kind).itemsize
    return np.array([np.frombuffer(DATA[o : o + size].tobytes(), kind)[0] for o in offset.tolist()]).astype(np.int64)


LOADS = {
    "ubyte": ("u1", None), "sbyte": ("i1", None), "ushort": ("u2", None), "sshort": ("i2", None), "dword": ("u4", None),
    "ubyte_d16": ("u1", "low"), "ubyte_d16_hi": ("u1", "high"), "sbyte_d16": ("i1", "low"), "sbyte_d16_hi": ("i1", "high"),
    "short_d16": ("u2", "low"), "short_d16_hi": ("u2", "high"),
}  # fmt: skip


def merged(value: np.ndarray, half: str | None) -> np.ndarray:
    if half is None:
        return value & 0xFFFFFFFF
    value = value & 0xFFFF
    return (OLD & 0xFFFF0000 | value) if half == "low" else (OLD & 0xFFFF | value << 16)


RESOURCE = "s_mov_b64 s[8:9], s[6:7]\n s_mov_b32 s10, {records}\n s_mov_b32 s11, 0x27000\n"
FLAT_ADDRESS = "v_mov_b32 v7, s7\n v_add_co_u32 v6, vcc, s6, v5\n s_nop 1\n v_addc_co_u32 v7, vcc, 0, v7, vcc\n"
ADDRESS = f"v_mul_u32_u24 v5, 12, v0\n v_mov_b32 v8, {OLD:#x}\n"


@pytest.mark.parametrize("segment", ["global", "flat", "buffer"])
@pytest.mark.parametrize("name", LOADS)
def test_loads(name, segment):
    body = {
        "global": f"global_load_{name} v8, v5, s[6:7] offset:20",
        "flat": FLAT_ADDRESS + f"flat_load_{name} v8, v[6:7] offset:20",
        "buffer": RESOURCE.format(records=4096) + f"buffer_load_{name} v8, v5, s[8:11], 0 offen offset:20",
    }[segment]
    kind, half = LOADS[name]
    assert np.array_equal(lanes(ADDRESS + body, DATA), merged(at(12 * LANE + 20, kind), half))


@pytest.mark.parametrize("words", [2, 3, 4])
@pytest.mark.parametrize("segment", ["global", "buffer"])
def test_wide_loads(segment, words):
    body = f"global_load_dwordx{words} v[8:{7 + words}], v5, s[6:7] offset:-4" if segment == "global" else (
        f"s_mov_b64 s[8:9], s[6:7]\n s_movk_i32 s10, 0x1000\n s_mov_b32 s11, 0x27000\n s_mov_b32 s12, 8\n"
        f"buffer_load_dwordx{words} v[8:{7 + words}], v5, s[8:11], s12 offen offset:4"
    )  # fmt: skip
    shift = 12 if segment == "buffer" else 12 - 4
    prepare = "v_add_u32 v5, 12, v5\n" if segment == "global" else ""
    got = lanes(ADDRESS + prepare + body, DATA, words=words)
    for k in range(words):
        assert np.array_equal(got[:, k], at(12 * LANE + shift + 4 * k, "u4"))


def test_only_active_lanes_load_and_store():
    body = "s_mov_b64 exec, 0x0f0f\n s_nop 4\n global_load_dword v8, v5, s[6:7]\n s_waitcnt vmcnt(0)"
    got = lanes(ADDRESS + body, DATA)
    active = (0x0F0F >> LANE.clip(0, 31) & 1).astype(bool) & (LANE < 32)
    assert np.array_equal(got, np.where(active, at(12 * LANE, "u4"), OLD))


STORES = {"byte": (0, 1), "byte_d16_hi": (2, 1), "short": (0, 2), "short_d16_hi": (2, 2), "dword": (0, 4)}


@pytest.mark.parametrize("name", STORES)
def test_stores(name):
    value = "v_mul_u32_u24 v8, 0x10305, v0\n v_add_u32 v8, 0x81828384, v8\n v_lshlrev_b32 v5, 3, v0\n"
    body = value + f"global_store_{name} v5, v8, s[6:7] offset:4"
    data = np.full(1024, 0xEE, np.uint8)
    run_code(snippet(body), data)
    skip, size = STORES[name]
    value = (0x10305 * LANE + 0x81828384).astype(np.uint32)[:, None].view(np.uint8)
    want = np.full((128, 8), 0xEE, np.uint8)
    want[:64, 4 : 4 + size] = value[:, skip : skip + size]
    assert np.array_equal(data.reshape(128, 8), want)


def test_raw_buffer_range_includes_the_scalar_offset():
    """Loads beyond num_records bytes give 0, stores vanish: no finding, kernels mask their tails like that."""
    body = (
        RESOURCE.format(records=200)
        + "s_mov_b32 s12, 40\n v_lshlrev_b32 v5, 2, v0\n buffer_load_dword v8, v5, s[8:11], s12 offen"
    )
    got = lanes(body, DATA)
    inside = 4 * LANE + 40 + 4 <= 200
    assert np.array_equal(got, np.where(inside, at(4 * LANE + 40, "u4"), 0))


def test_structured_buffer_counts_records():
    body = RESOURCE.format(records=30) + "s_or_b32 s9, s9, 0x100000\n buffer_load_dword v8, v0, s[8:11], 0 idxen offset:8"
    got = lanes(body, DATA)
    assert np.array_equal(got, np.where(LANE < 30, at(16 * LANE + 8, "u4"), 0))


def test_buffer_store_out_of_range_is_dropped():
    data = np.zeros(64, np.uint32)
    body = (
        RESOURCE.format(records=100)
        + "v_lshlrev_b32 v5, 2, v0\n v_add_u32 v8, 1, v0\n buffer_store_dword v8, v5, s[8:11], 0 offen"
    )
    run_code(snippet(body), data)
    assert np.array_equal(data, np.where(LANE < 25, LANE + 1, 0))


@pytest.mark.parametrize("out_of_range", [False, True])
def test_lds_dma(out_of_range):
    """Lane l's 16 bytes land at M0 + 16 l; lanes beyond the buffer's range write zeros."""
    records = 512 if out_of_range else 4096
    body = (
        RESOURCE.format(records=records)
        + """
      v_xor_b32 v5, 63, v0
      v_lshlrev_b32 v5, 4, v5
      s_movk_i32 m0, 0x400
      s_nop 0
      buffer_load_dwordx4 v5, s[8:11], 0 offen lds
      s_waitcnt vmcnt(0)
      v_lshlrev_b32 v6, 4, v0
      ds_read_b128 v[8:11], v6 offset:1024
    """
    )
    got = lanes(body, DATA, words=4, lds=4096)
    source = 16 * (63 - LANE)
    for k in range(4):
        assert np.array_equal(got[:, k], np.where(source + 16 <= records, at(source + 4 * k, "u4"), 0))


@pytest.mark.parametrize("name", ["ubyte", "sshort", "dword", "dwordx3"])
def test_global_load_lds(name):
    step = {"dwordx3": 12}.get(name, 4)
    body = f"""
      v_lshlrev_b32 v5, 5, v0
      s_movk_i32 m0, 0x100
      s_nop 0
      global_load_lds_{name} v5, s[6:7] offset:4
      s_waitcnt vmcnt(0)
      v_mul_u32_u24 v6, {step}, v0
      ds_read_b32 v8, v6 offset:260
    """
    kind = {"ubyte": "u1", "sshort": "i2"}.get(name, "u4")
    assert np.array_equal(lanes(body, DATA, lds=4096), at(32 * LANE + 4, kind) & 0xFFFFFFFF)


def test_scratch_is_private_to_a_lane():
    body = """
      v_mul_u32_u24 v7, 3, v0
      scratch_store_dword off, v7, off offset:16
      v_mov_b32 v5, 20
      v_lshlrev_b32 v6, 1, v0
      scratch_store_short v5, v6, off
      s_mov_b32 s20, 16
      scratch_load_dword v8, off, s20
      scratch_load_sshort v9, v5, off
    """
    got = lanes(body, words=2, scratch=64)
    assert np.array_equal(got[:, 0], 3 * LANE)
    assert np.array_equal(got[:, 1], 2 * LANE)


def test_generic_addresses_reach_lds_and_scratch():
    body = """
      s_mov_b64 s[20:21], src_shared_base
      s_mov_b64 s[22:23], src_private_base
      v_lshlrev_b32 v10, 2, v0
      v_mov_b32 v11, s21
      v_mov_b32 v12, 8
      v_mov_b32 v13, s23
      v_add_u32 v7, 100, v0
      flat_store_dword v[10:11], v7
      flat_store_dword v[12:13], v0
      s_waitcnt vmcnt(0) lgkmcnt(0)
      flat_load_dword v8, v[10:11]
      flat_load_dword v9, v[12:13]
    """
    got = lanes(body, words=2, lds=256, scratch=16)
    assert np.array_equal(got[:, 0], 100 + LANE)
    assert np.array_equal(got[:, 1], LANE)


def as_float(x: int) -> float:
    return float(np.uint32(x).view(np.float32))


def packed(old: int, data: int, kind) -> int:
    pair = np.array([old, data], np.uint32).view(kind).reshape(2, 2).astype(np.float64)
    return int((pair[0] + pair[1]).astype(kind).view(np.uint32)[0])


M32 = 0xFFFFFFFF


def signed32(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


ATOMICS = {
    "swap": lambda o, d: d, "add": lambda o, d: o + d, "sub": lambda o, d: o - d, "and": lambda o, d: o & d,
    "or": lambda o, d: o | d, "xor": lambda o, d: o ^ d, "umin": min, "umax": max,
    "smin": lambda o, d: min(o, d, key=signed32), "smax": lambda o, d: max(o, d, key=signed32),
    "inc": lambda o, d: 0 if o >= d else o + 1, "dec": lambda o, d: d if o == 0 or o > d else o - 1,
    "add_f32": lambda o, d: int(np.float32(as_float(o) + as_float(d)).view(np.uint32)),
    "pk_add_f16": lambda o, d: packed(o, d, np.float16), "pk_add_bf16": lambda o, d: packed(o, d, ml_dtypes.bfloat16),
}  # fmt: skip


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name, returns):
    """Lanes work on sixteen counters, four lanes each, in lane order."""
    rng = np.random.default_rng(1)
    memory = rng.integers(0, 1 << 32, 16, np.uint32)
    operand = rng.integers(0, 1 << 32, 64, np.uint32)
    if "add_" in name:  # finite numbers
        memory, operand = (x & 0xBFFFBFFF for x in (memory, operand))
    data = np.concatenate([operand, memory])
    result, suffix = ("v8, ", " sc0") if returns else ("", "")
    body = f"""
      v_lshlrev_b32 v5, 2, v0
      global_load_dword v7, v5, s[6:7]
      v_and_b32 v6, 15, v0
      v_lshlrev_b32 v6, 2, v6
      v_mov_b32 v8, 0
      s_waitcnt vmcnt(0)
      global_atomic_{name} {result}v6, v7, s[6:7] offset:256{suffix}
    """
    got = lanes(body, data)
    state = memory.tolist()
    for lane in range(64):
        old = state[lane & 15]
        assert got[lane] == (old if returns else 0)
        state[lane & 15] = ATOMICS[name](old, int(operand[lane])) & M32
    assert data[64:].tolist() == state


def test_compare_and_swap_and_64_bit_atomics():
    data = np.array([5, 9, 7, 0], np.uint32)
    body = """
      s_mov_b64 exec, 1
      v_mov_b32 v5, 0
      v_mov_b32 v10, 77
      v_mov_b32 v11, 5
      global_atomic_cmpswap v8, v5, v[10:11], s[6:7] sc0
      v_mov_b32 v11, 6
      global_atomic_cmpswap v9, v5, v[10:11], s[6:7] offset:4 sc0
      v_mov_b32 v12, -1
      v_mov_b32 v13, 0
      global_atomic_add_x2 v[14:15], v5, v[12:13], s[6:7] offset:8 sc0
      s_waitcnt vmcnt(0)
      v_mov_b32 v10, v14
      v_mov_b32 v11, v15
    """
    got = lanes(body, data, words=4, strict=False)
    assert got[0].tolist() == [5, 9, 7, 0]
    assert data.tolist() == [77, 9, 6, 1]


def test_scalar_loads_of_every_width():
    body = "s_load_dwordx16 s[16:31], s[6:7], 0x40\n s_mov_b32 s3, 8\n s_load_dwordx2 s[32:33], s[6:7], s3\n"
    body += "s_waitcnt lgkmcnt(0)\n"
    moves = "".join(f"v_mov_b32 v{8 + k}, s{16 + k}\n" for k in range(18))
    data = np.arange(64, dtype=np.uint32) + 7
    assert lanes(body + moves, data, words=18)[0].tolist() == [*range(23, 39), 9, 10]


def test_scalar_buffer_load_clamps_to_its_size():
    body = RESOURCE.format(records=72) + "s_buffer_load_dwordx4 s[16:19], s[8:11], 0x40\n s_waitcnt lgkmcnt(0)\n"
    moves = "".join(f"v_mov_b32 v{8 + k}, s{16 + k}\n" for k in range(4))
    data = np.arange(64, dtype=np.uint32) + 7
    assert lanes(body + moves, data, words=4)[0].tolist() == [23, 24, 0, 0]


def test_a_wave_sees_its_own_stores_at_once():
    body = (
        "v_lshlrev_b32 v5, 2, v0\n v_add_u32 v7, 9, v0\n global_store_dword v5, v7, s[6:7]\n global_load_dword v8, v5, s[6:7]"
    )
    assert np.array_equal(lanes(body, np.zeros(64, np.uint32)), LANE + 9)


def test_unaligned_atomics_are_reported():
    kinds = [f.kind for f in findings("v_lshlrev_b32 v5, 1, v0\n v_mov_b32 v8, 1\n global_atomic_add v5, v8, s[6:7]", DATA)]
    assert kinds == ["misaligned"]
