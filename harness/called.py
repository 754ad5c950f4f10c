"""What the referee knows of calls that a worker has made."""

from dataclasses import dataclass
from typing import Any

import torch

from harness.timing import Sample


@dataclass(frozen=True)
class Called:
    """One call's sample, and the shape of its output, which stays in the worker until it is taken or the next call."""

    sample: Sample
    tree: Any
    storages: tuple[tuple[int, torch.device], ...]  # bytes and device of each
    description: Any = None  # what the submission's describe() returned: reported, never trusted
    wall_ns: int = 0  # by the referee's clock, from the request until the last answer; without the sleep it asked for
    waited_ns: int = 0  # of that, for a processor
    ahead_ns: int = 0  # processor time that it used for this call before it was asked
    used_ns: int | None = None  # processor time of the worker and all that it started, within that; unknown on a GPU
    index: int = 0  # in its burst
    taken: bool = False
    output: Any = None  # once taken

    @property
    def nbytes(self) -> int:
        """Bytes of the output."""
        return sum(nbytes for nbytes, _ in self.storages)


@dataclass(frozen=True)
class Burst:
    """Calls in a row: how long they took by the referee's clock, of that waiting for a processor, and their outputs."""

    called: tuple[Called, ...]
    wall_ns: int
    waited_ns: int
