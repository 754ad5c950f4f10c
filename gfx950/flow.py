"""Control flow of one kernel, instruction by instruction: who can run right before, and right after, whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .decode import Instruction

ENDS = ("s_endpgm", "s_branch", "s_setpc_b64", "s_rfe", "s_trap")
INDIRECT = ("s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_cbranch_g_fork", "s_cbranch_join")


@dataclass(frozen=True)
class Flow:
    """successors[i] and predecessors[i]: indices of the instructions that may follow, or precede, instruction i.

    `exact` is False when a jump's target is only known at run time: then edges are missing.
    """

    successors: tuple[tuple[int, ...], ...]
    predecessors: tuple[tuple[int, ...], ...]
    exact: bool


def control_flow(code: Sequence[Instruction]) -> Flow:
    """Edges of a kernel's instructions, given in address order."""
    at = {inst.address: index for index, inst in enumerate(code)}
    successors: list[tuple[int, ...]] = []
    predecessors: list[list[int]] = [[] for _ in code]
    for index, inst in enumerate(code):
        following = [] if inst.mnemonic.startswith(ENDS) else [index + 1]
        if inst.target is not None and not inst.mnemonic.startswith("s_call"):
            following.append(at.get(inst.target, -1))
        inside = tuple(dict.fromkeys(target for target in following if 0 <= target < len(code)))
        successors.append(inside)
        for target in inside:
            predecessors[target].append(index)
    exact = not any(inst.mnemonic.startswith(INDIRECT) for inst in code)
    return Flow(tuple(successors), tuple(map(tuple, predecessors)), exact)


def reachable(flow: Flow, entries: Sequence[int]) -> set[int]:
    """Instructions that can run when execution begins at `entries`."""
    seen: set[int] = set()
    pending = list(entries)
    while pending:
        index = pending.pop()
        if index not in seen:
            seen.add(index)
            pending += flow.successors[index]
    return seen
