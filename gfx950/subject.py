"""A kernel under examination: its code decoded once, with control flow and source lines at hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

from .codeobject import CodeObject, Kernel
from .decode import Instruction, decode
from .definitions import entries
from .flow import Flow, control_flow, reachable
from .hazards import Hazard, find_hazards

LINES_SHOWN = 4


class Subject:
    """A kernel under examination, decoded when first asked for."""

    def __init__(self, code: CodeObject, kernel: Kernel) -> None:
        self.code = code
        self.kernel = kernel

    @cached_property
    def instructions(self) -> Sequence[Instruction]:
        return decode(self.code.kernel_code(self.kernel))

    @cached_property
    def flow(self) -> Flow:
        return control_flow(self.instructions)

    @cached_property
    def reachable(self) -> list[Instruction]:
        """Instructions that can run, in address order: padding after the last s_endpgm is not among them."""
        if not self.flow.exact:
            return list(self.instructions)
        found = reachable(self.flow, entries(self.kernel.descriptor, self.instructions))
        return [self.instructions[index] for index in sorted(found)]

    @cached_property
    def hazards(self) -> list[Hazard]:
        """Missing wait states between instructions that can run. On which of them a launch met, its counts tell."""
        alive = {inst.address for inst in self.reachable}
        return [hazard for hazard in find_hazards(self.instructions, self.flow) if hazard.consumer in alive]

    def lines_of(self, instructions: Iterable[Instruction]) -> str:
        """'k.hip:12 (3 times), k.hip:14': where instructions come from, the most frequent first."""
        frames = (self.code.source_line(inst.address) for inst in instructions)
        counts = Counter(str(frame) for frame in frames if frame)
        shown = [line if count == 1 else f"{line} ({count} times)" for line, count in counts.most_common(LINES_SHOWN)]
        return ", ".join(shown) + (", ..." if len(counts) > LINES_SHOWN else "")
