"""Runs single vector operations of the emulator on numpy arrays of 64 lanes.

`run("v_add_f32", a, b)` takes one array per source: (64,) uint32 for one register, (words, 64) for wider operands (64-bit
values are also accepted as (64,) uint64), and returns the destination in the same form.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from gfx950.emulator import build
from gfx950.errors import ToolchainMissing

LANES = 64
KINDS = ("lane", "mask", "compare", "mfma")
NEAREST, UP, DOWN, ZERO = range(4)


class _Call(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("s0", "s1", "s2", "extra0", "extra1")),
        *((name, ctypes.c_void_p) for name in ("q0", "q1", "q2", "q_extra0", "q_extra1", "q_dst")),
        ("mask", ctypes.c_uint64),
        ("mask_shadow", ctypes.c_uint64),
        ("modifiers", ctypes.c_char_p),
        ("mode", ctypes.c_char_p),
    ]


@dataclass(frozen=True)
class Mode:
    """Floating-point mode; the defaults are those of a HIP kernel for gfx950."""

    round32: int = NEAREST
    round16_64: int = NEAREST
    fp32_denorm: int = 3
    fp16_64_denorm: int = 3
    dx10_clamp: bool = True
    ieee: bool = True
    fp16_overflow: bool = False

    def pack(self) -> bytes:
        return bytes(
            [
                self.round32,
                self.round16_64,
                self.fp32_denorm,
                self.fp16_64_denorm,
                self.dx10_clamp,
                self.ieee,
                self.fp16_overflow,
            ]
        )


@dataclass(frozen=True)
class Op:
    """What the library says of an operation."""

    name: str
    kind: str
    dst_words: int
    src_words: tuple[int, ...]
    src_types: tuple[int, ...]
    reads_dst: bool
    mask_in: bool
    mask_out: bool


@dataclass
class Poison:
    """Poisoned bits of sources, old destination and lane mask, in the form of the values they belong to."""

    sources: tuple[ArrayLike | None, ...] = ()
    dst: ArrayLike | None = None
    mask: int = 0
    extras: tuple[ArrayLike | None, ...] = ()


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    try:
        library = build.load_library()
    except ToolchainMissing as error:
        pytest.skip(str(error), allow_module_level=True)
    library.arith_op_name.restype = ctypes.c_char_p
    library.arith_describe.restype = ctypes.c_bool
    library.arith_run.restype = library.arith_shadow.restype = ctypes.c_uint64
    return library


def op_names() -> list[str]:
    """Every operation the library knows."""
    names = []
    while name := _library().arith_op_name(len(names)):
        names.append(name.decode())
    return names


@cache
def describe(name: str) -> Op | None:
    """The operation of that name, or None."""
    fields = (ctypes.c_uint8 * 12)()
    if not _library().arith_describe(name.encode(), fields):
        return None
    kind, dst_words, count, *rest = fields
    return Op(name, KINDS[kind], dst_words, tuple(rest[:count]), tuple(rest[3 : 3 + count]), *map(bool, rest[6:9]))


def words(value: ArrayLike) -> NDArray[np.uint32]:
    """(words, 64) uint32 of an operand; scalars fill all lanes."""
    array = np.asarray(value)
    if array.ndim == 0:
        array = np.full(LANES, array)
    if array.ndim == 1 and array.dtype.itemsize == 8:
        pairs = array.view(np.uint64)
        array = np.stack([pairs & 0xFFFFFFFF, pairs >> np.uint64(32)])
    if array.dtype == np.float32 or array.dtype == np.int32:
        array = array.view(np.uint32)
    if array.dtype in (np.float16, np.int16):
        array = array.view(np.uint16)
    return np.ascontiguousarray(np.atleast_2d(array), dtype=np.uint32)


def _modifiers(**given: int) -> bytes:
    fields = {"neg": 0, "abs": 0, "neg_hi": 0, "op_sel": 0, "op_sel_hi": 7, "omod": 0, "clamp": 0}
    fields |= {"cbsz": 0, "abid": 0, "blgp": 0, "bitop3": 0}
    unknown = given.keys() - fields.keys()
    assert not unknown, unknown
    return bytes((fields | given).values())


def _pointer(array: NDArray[np.uint32] | None) -> int | None:
    return None if array is None else array.ctypes.data


def run_with_mask(
    name: str,
    *sources: ArrayLike,
    dst: ArrayLike | None = None,
    mask: int = 0,
    extras: tuple[ArrayLike, ...] = (),
    mode: Mode = Mode(),
    **modifiers: int,
) -> tuple[NDArray[np.uint32], int]:
    """Destination (words, 64) and lane mask of one operation. `dst`: old destination; `extras`: scales or sparsity index."""
    op = describe(name)
    assert op is not None, name
    arrays = [words(s) for s in sources]
    others = [words(e) for e in extras]
    result = np.zeros((max(op.dst_words, 1), LANES), np.uint32) if dst is None else words(dst).copy()
    call = _Call(modifiers=_modifiers(**modifiers), mode=mode.pack(), mask=mask)
    for slot, array in zip(("s0", "s1", "s2"), arrays, strict=False):
        setattr(call, slot, _pointer(array))
    for slot, array in zip(("extra0", "extra1"), others, strict=False):
        setattr(call, slot, _pointer(array))
    out = _library().arith_run(name.encode(), ctypes.c_void_p(result.ctypes.data), ctypes.byref(call))
    return result, out


def run(name: str, *sources: ArrayLike, **options) -> NDArray[np.uint32]:
    """The destination: (64,) for one word, (words, 64) otherwise."""
    result, _ = run_with_mask(name, *sources, **options)
    return result[0] if len(result) == 1 else result


def run64(name: str, *sources: ArrayLike, **options) -> NDArray[np.uint64]:
    """A 64-bit destination, (64,) uint64."""
    low, high = run_with_mask(name, *sources, **options)[0]
    return low | high.astype(np.uint64) << np.uint64(32)


def compare(name: str, *sources: ArrayLike, **options) -> NDArray[np.bool_]:
    """The lane mask of a compare or carry, as (64,) booleans."""
    mask = run_with_mask(name, *sources, **options)[1]
    return np.array([mask >> lane & 1 for lane in range(LANES)], bool)


def shadow_with_mask(
    name: str, *sources: ArrayLike, poison: Poison, mask: int = 0, **modifiers: int
) -> tuple[NDArray[np.uint32], int]:
    """Poison of the destination (words, 64) and of the lane mask."""
    op = describe(name)
    assert op is not None, name
    result = np.zeros((max(op.dst_words, 1), LANES), np.uint32)
    call = _Call(modifiers=_modifiers(**modifiers), mode=Mode().pack(), mask=mask, mask_shadow=poison.mask)
    keep = []

    def put(slot: str, value: ArrayLike | None) -> None:
        if value is not None:
            keep.append(words(value))
            setattr(call, slot, _pointer(keep[-1]))

    for slot, value in zip(("s0", "s1", "s2"), sources, strict=False):
        put(slot, value)
    for slot, value in zip(("q0", "q1", "q2"), poison.sources, strict=False):
        put(slot, value)
    for slot, value in zip(("q_extra0", "q_extra1"), poison.extras, strict=False):
        put(slot, value)
    put("q_dst", poison.dst)
    out = _library().arith_shadow(name.encode(), ctypes.c_void_p(result.ctypes.data), ctypes.byref(call))
    return result, out


def shadow(name: str, *sources: ArrayLike, poison: Poison, **options) -> NDArray[np.uint32]:
    """Poison of the destination: (64,) for one word, (words, 64) otherwise."""
    result, _ = shadow_with_mask(name, *sources, poison=poison, **options)
    return result[0] if len(result) == 1 else result
