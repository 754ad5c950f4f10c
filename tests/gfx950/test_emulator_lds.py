"""LDS: widths, pairs, halves, transposed reads, atomics, and what happens out of bounds."""

import numpy as np
import pytest
from snippets import findings, lanes

LANE = np.arange(64)
DATA = np.random.default_rng(951).integers(0, 256, 4096, np.uint8)

# Fills LDS with the 4096 bytes of `data`: each lane copies 64.
FILL = (
    "v_lshlrev_b32 v5, 6, v0\n"
    + "".join(f"global_load_dwordx4 v[{20 + 4 * k}:{23 + 4 * k}], v5, s[6:7] offset:{16 * k}\n" for k in range(4))
    + "s_waitcnt vmcnt(0)\n"
    + "".join(f"ds_write_b128 v5, v[{20 + 4 * k}:{23 + 4 * k}] offset:{16 * k}\n" for k in range(4))
    + "s_waitcnt lgkmcnt(0)\n"
)
OLD = 0xA5A5C3C3


def at(offset: np.ndarray, kind: str = "u4") -> np.ndarray:
    size = np.dtype(kind).itemsize
    return np.array([np.frombuffer(DATA[o : o + size].tobytes(), kind)[0] for o in offset.tolist()]).astype(np.int64)


def read(body: str, words: int = 1) -> np.ndarray:
    return lanes(FILL + f"v_mul_u32_u24 v6, 20, v0\n v_mov_b32 v8, {OLD:#x}\n" + body, DATA, words=words, lds=4096)


READS = {
    "u8": ("u1", None), "i8": ("i1", None), "u16": ("u2", None), "i16": ("i2", None), "b32": ("u4", None),
    "u8_d16": ("u1", 0), "u8_d16_hi": ("u1", 16), "i8_d16": ("i1", 0), "i8_d16_hi": ("i1", 16),
    "u16_d16": ("u2", 0), "u16_d16_hi": ("u2", 16),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_narrow_reads(name):
    kind, shift = READS[name]
    got = read(f"ds_read_{name} v8, v6 offset:5" if kind[1] == "1" else f"ds_read_{name} v8, v6 offset:4")
    value = at(20 * LANE + (5 if kind[1] == "1" else 4), kind)
    want = value & 0xFFFFFFFF if shift is None else OLD & (0xFFFF0000 >> shift) | (value & 0xFFFF) << shift
    assert np.array_equal(got, want)


@pytest.mark.parametrize(("name", "words"), [("b64", 2), ("b96", 3), ("b128", 4)])
def test_wide_reads(name, words):
    got = read(f"v_lshlrev_b32 v6, 4, v0\n ds_read_{name} v[8:{7 + words}], v6 offset:16", words)
    for k in range(words):
        assert np.array_equal(got[:, k], at(16 * LANE + 16 + 4 * k))


@pytest.mark.parametrize(
    ("name", "scale"), [("read2_b32", 4), ("read2_b64", 8), ("read2st64_b32", 256), ("read2st64_b64", 512)]
)
def test_paired_reads(name, scale):
    words = 4 if name.endswith("64") else 2
    got = read(f"v_lshlrev_b32 v6, 3, v0\n ds_{name} v[8:{7 + words}], v6 offset0:1 offset1:3", words)
    for k in range(words):
        offset = (1 if k < words // 2 else 3) * scale + 4 * (k % (words // 2))
        assert np.array_equal(got[:, k], at(8 * LANE + offset))


WRITES = {"b8": (0, 1), "b8_d16_hi": (2, 1), "b16": (0, 2), "b16_d16_hi": (2, 2), "b32": (0, 4)}


@pytest.mark.parametrize("name", WRITES)
def test_narrow_writes(name):
    body = (
        FILL
        + f"v_mov_b32 v7, 0x44332211\n v_lshlrev_b32 v6, 2, v0\n ds_write_{name} v6, v7 offset:8\n ds_read_b32 v8, v6 offset:8"
    )
    skip, size = WRITES[name]
    want = DATA[8 : 8 + 256].reshape(64, 4).copy()
    want[:, :size] = np.array([0x11, 0x22, 0x33, 0x44], np.uint8)[skip : skip + size]
    assert np.array_equal(lanes(body, DATA, lds=4096), want.view(np.uint32)[:, 0])


@pytest.mark.parametrize("name", ["write2_b32", "write2st64_b32"])
def test_paired_writes(name):
    step = 256 if "st64" in name else 4
    body = f"""
      v_add_u32 v7, 100, v0
      v_add_u32 v9, 500, v0
      v_lshlrev_b32 v6, 3, v0
      ds_{name} v6, v7, v9 offset0:0 offset1:{1 if step == 4 else 2}
      s_waitcnt lgkmcnt(0)
      ds_read_b32 v8, v6
      v_add_u32 v10, {step if step == 4 else 512}, v6
      ds_read_b32 v9, v10
    """
    got = lanes(body, words=2, lds=2048)
    assert np.array_equal(got[:, 0], 100 + LANE)
    assert np.array_equal(got[:, 1], 500 + LANE)


def elements(words: np.ndarray, bits: int) -> list[int]:
    """Elements of `bits` bits packed in the words of one lane, lowest first."""
    packed = int.from_bytes(words.tobytes(), "little")
    return [packed >> at & (1 << bits) - 1 for at in range(0, 96 if bits == 6 else 64, bits)]


@pytest.mark.parametrize(("name", "bits"), [("b64_tr_b16", 16), ("b64_tr_b8", 8), ("b64_tr_b4", 4), ("b96_tr_b6", 6)])
def test_transposed_reads_give_each_lane_a_column(name, bits):
    """Sixteen lanes hold a matrix of 16 columns, row after row; lane c receives column c."""
    words, shift = (3, 4) if bits == 6 else (2, 3)  # a lane's data lie 16 or 8 bytes apart
    body = FILL + f"v_lshlrev_b32 v6, {shift}, v0\n ds_read_{name} v[8:{7 + words}], v6"
    got = lanes(body, DATA, words=words, lds=4096)
    rows = DATA[: 64 << shift].reshape(64, 1 << shift)[:, : 4 * words]
    for block in range(0, 64, 16):
        matrix = np.array([elements(row, bits) for row in rows[block : block + 16]]).reshape(-1, 16)
        for column in range(16):
            assert elements(got[block + column], bits) == matrix[:, column].tolist()


M32 = 0xFFFFFFFF


def signed(x: int) -> int:
    return x - (x >> 31 << 32)


ATOMICS = {
    "add_u32": lambda o, d: o + d, "sub_u32": lambda o, d: o - d, "rsub_u32": lambda o, d: d - o,
    "min_u32": min, "max_u32": max,
    "min_i32": lambda o, d: min(o, d, key=signed), "max_i32": lambda o, d: max(o, d, key=signed),
    "and_b32": lambda o, d: o & d, "or_b32": lambda o, d: o | d, "xor_b32": lambda o, d: o ^ d,
    "inc_u32": lambda o, d: 0 if o >= d else o + 1, "dec_u32": lambda o, d: d if o == 0 or o > d else o - 1,
}  # fmt: skip


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_in_lane_order(name, returns):
    operation, kind = name.split("_")
    instruction = f"ds_{operation}_rtn_{kind} v8, v6, v7" if returns else f"ds_{name} v6, v7"
    body = (
        FILL
        + f"""
      v_lshlrev_b32 v6, 2, v0
      ds_read_b32 v7, v6 offset:1024
      v_and_b32 v6, 7, v0
      v_lshlrev_b32 v6, 2, v6
      s_waitcnt lgkmcnt(0)
      v_mov_b32 v8, 0
      {instruction}
      s_waitcnt lgkmcnt(0)
      ds_read_b32 v9, v6
    """
    )
    got = lanes(body, DATA, words=2, lds=4096)
    state = at(4 * np.arange(8)).tolist()
    for lane, data in enumerate(at(1024 + 4 * LANE).tolist()):
        old = state[lane & 7]
        assert got[lane, 0] == (old if returns else 0)
        state[lane & 7] = ATOMICS[name](old, data) & M32
    assert np.array_equal(got[:, 1], np.array(state)[LANE & 7])


def test_exchanges_and_compare_and_swap():
    body = (
        FILL
        + """
      s_mov_b64 exec, 1
      v_mov_b32 v6, 0
      ds_read_b32 v12, v6
      v_mov_b32 v7, 77
      s_waitcnt lgkmcnt(0)
      ds_cmpst_rtn_b32 v8, v6, v12, v7
      ds_cmpst_rtn_b32 v9, v6, v12, v6
      ds_wrxchg2_rtn_b32 v[10:11], v6, v6, v7 offset0:0 offset1:1
      s_waitcnt lgkmcnt(0)
    """
    )
    got = lanes(body, DATA, words=4, lds=4096, strict=False)[0]
    assert got.tolist() == [*at(np.array([0])), 77, 77, *at(np.array([4]))]


def test_append_and_consume_count_active_lanes():
    body = (
        FILL
        + """
      v_mov_b32 v8, 0
      v_mov_b32 v9, 0
      s_movk_i32 m0, 0x40
      s_mov_b64 exec, 0xff
      s_nop 4
      ds_append v8 offset:4
      ds_consume v9 offset:4
      s_waitcnt lgkmcnt(0)
    """
    )
    got = lanes(body, DATA, words=2, lds=4096)
    old = at(np.array([0x44]))[0]
    assert got[0].tolist() == [old, (old + 8) & M32]


def test_add_thread_id_addressing():
    body = FILL + "s_movk_i32 m0, 0x80\n s_nop 0\n ds_read_addtid_b32 v8 offset:16"
    assert np.array_equal(lanes(body, DATA, lds=4096), at(0x90 + 4 * LANE))


def test_out_of_bounds_is_reported_and_reads_zero():
    body = FILL + "v_lshlrev_b32 v6, 6, v0\n ds_read_b64 v[8:9], v6 offset:60"
    found = findings(body, DATA, words=2, lds=4096)
    assert [(f.kind, f.lane, f.address) for f in found] == [("lds-out-of-bounds", 63, 64 * 63 + 60)]
    got = lanes(body, DATA, words=2, lds=4096, strict=False)
    assert got[63].tolist() == [0, 0]
    assert got[62, 0] == at(np.array([62 * 64 + 60]))[0]
