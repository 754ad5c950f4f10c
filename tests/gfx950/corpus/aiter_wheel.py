"""The gfx950 code objects of PyPI's `amd-aiter` wheel, and their way of taking arguments."""

import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gfx950 import CodeObject, Kernel
from gfx950.emulator import Buffer

from . import wheels

REQUIREMENT = "amd-aiter==0.1.7.post2.dev18"
FOLDER = "aiter_meta/hsa/gfx950"
THREADS = 256  # work-items in every workgroup


@cache
def wheel() -> Path:
    """The wheel, fetched once. Raises wheels.Unreachable."""
    return wheels.fetch(REQUIREMENT)


@cache
def code_object(path: str) -> CodeObject:
    """The object at `path` below the gfx950 folder, such as "mla/NAME.co". Raises wheels.Unreachable."""
    with zipfile.ZipFile(wheel()) as archive:
        return CodeObject.load(archive.read(f"{FOLDER}/{path}"), name=Path(path).name)


def arguments(kernel: Kernel, slots: dict[int, Any]) -> list[Any]:
    """Kernel arguments in the order of the object's metadata, given by byte offset; the rest (padding) is 0."""
    return [slots.get(arg.offset, 0) for arg in kernel.args]


def read_only(tensor: torch.Tensor, name: str) -> Buffer:
    return Buffer(tensor, name, writable=False)
