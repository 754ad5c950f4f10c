"""Executes PTX kernels as the ISA describes them, thread by thread in random order: for kernels of a few blocks.

One warp is one thread here, so that nothing relies on warps. Memory is a dict of numbers by address or name; time passes
with every instruction. Blocks begin as others end, at most `capacity` at a time, those of the first kernel first.
"""

import operator
import random
import re
from dataclasses import dataclass, field

MASK = {"32": 2**32 - 1, "64": 2**64 - 1}
COMPARE = {"eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt}
ARITHMETIC = {
    "add": operator.add, "sub": operator.sub, "xor": operator.xor, "shl": operator.lshift, "min": min, "max": max,
}  # fmt: skip
Code = tuple[list[tuple[str | None, str, list[str]]], dict[str, int]]


def entries(ptx: str) -> dict[str, Code]:
    """The kernels of a module by name."""
    names = re.split(r"^\.visible \.entry (\w+)\(", ptx, flags=re.MULTILINE)[1:]
    return {name: parsed(text) for name, text in zip(names[::2], names[1::2], strict=True)}


def parsed(kernel: str) -> Code:
    """Instructions as (guard, opcode, operands), and where each label stands."""
    body = kernel[kernel.index("\n{") + 2 : kernel.index("\n}")]
    lines = [line.partition("//")[0].strip() for line in body.splitlines()]
    code, labels = [], {}
    for line in filter(None, lines):
        if line.endswith(":"):
            labels[line[:-1]] = len(code)
        elif not line.startswith(".reg"):
            ((guard, text),) = re.findall(r"^(?:@(\w+)\s+)?(.*);$", line)
            opcode, _, operands = text.partition(" ")
            code.append((guard, opcode, re.findall(r"\{.*?\}|\[.*?\]|[^,\s]+", operands)))
    return code, labels


@dataclass
class Thread:
    """One thread's registers and place in the code; `waits`: at the block's barrier."""

    kernel: str
    parameters: dict[str, int]
    special: dict[str, int]
    speed: float  # some are far slower than others
    pc: int = 0
    registers: dict[str, int] = field(default_factory=dict)
    waits: bool = False
    wakes_ns: int = 0
    ended: bool = False


class Machine:
    """One device. `log` holds (ns, kernel, what) of begins, stores, wide loads and ends."""

    def __init__(self, ptx: str, seed: int, step_ns: int = 5):
        self.entries = entries(ptx)
        self.random, self.step_ns, self.now_ns = random.Random(seed), step_ns, 10**9
        self.memory: dict[int | str, int] = {}
        self.log: list[tuple[int, str, str]] = []
        self.pauses: dict[int, int] = {}  # ns after the launch -> ns for which another context has the device

    def grid(self, kernel: str, blocks: int, threads: int, parameters: dict[str, int]) -> list[list[Thread]]:
        """The blocks of a launch, in the random order in which they begin."""
        sizes = {"%ntid.x": threads, "%nctaid.x": blocks}

        def thread(t: int, b: int) -> Thread:
            return Thread(kernel, parameters, {**sizes, "%tid.x": t, "%ctaid.x": b}, self.random.uniform(0.2, 1) ** 2)

        grid = [[thread(t, b) for t in range(threads)] for b in range(blocks)]
        self.random.shuffle(grid)
        return grid

    def run(self, *grids: list[list[Thread]], capacity: int) -> None:
        """Run kernels, given in the order in which they get places, to their end."""
        waiting = [block for grid in grids for block in grid]
        running: list[list[Thread]] = []
        begun_ns, pauses = self.now_ns, sorted(self.pauses.items())
        while waiting or running:
            while waiting and len(running) < capacity:
                running.append(waiting.pop(0))
                self.log.append((self.now_ns, running[-1][0].kernel, "begin"))
            self.now_ns += self.step_ns
            if pauses and self.now_ns - begun_ns >= pauses[0][0]:
                self.now_ns += pauses.pop(0)[1]
            able = [t for block in running for t in block if not (t.ended or t.waits) and t.wakes_ns <= self.now_ns]
            if able:
                self._step(self.random.choices(able, [thread.speed for thread in able])[0])
            for block in running:
                if all(t.waits or t.ended for t in block):
                    for thread in block:
                        thread.waits = False
            running = [block for block in running if not all(t.ended for t in block)]

    def _value(self, thread: Thread, operand: str) -> int:
        if operand == "%globaltimer":
            return self.now_ns
        if operand in thread.special:
            return thread.special[operand]
        return int(operand, 0) if operand[0].isdigit() else thread.registers[operand]

    def _address(self, thread: Thread, operand: str) -> int | str:
        name, _, offset = operand.strip("[]").partition("+")
        return thread.registers[name] + int(offset or 0) if name in thread.registers else name

    def _step(self, thread: Thread) -> None:
        guard, opcode, operands = self.entries[thread.kernel][0][thread.pc]
        thread.pc += 1
        if guard and not thread.registers[guard]:
            return
        kind, *rest = opcode.split(".")
        width = (rest[-1][-2:] if rest else "") or "32"
        if kind in ("bra", "ret", "bar", "nanosleep", "membar"):
            self._flow(thread, kind, operands)
        elif kind in ("ld", "st", "atom", "red"):
            self._access(thread, opcode, operands)
        else:
            a, *more = (self._value(thread, operand) for operand in operands[1:])
            thread.registers[operands[0]] = self._computed(opcode, kind, rest, width, a, more)

    def _computed(self, opcode: str, kind: str, rest: list[str], width: str, a: int, more: list[int]) -> int:
        if kind == "setp":
            signed = lambda x: x - 2**32 if rest[1] == "s32" and x >= 2**31 else x  # noqa: E731
            return COMPARE[rest[0]](signed(a), signed(more[0]))
        if opcode == "mul.wide.u32":
            return a * more[0]
        if kind in ("mul", "mad"):
            return (a * more[0] + sum(more[1:])) & MASK[width]
        if kind in ("mov", "cvta", "cvt"):
            return a & MASK["32" if rest[0] == "u32" else "64"]
        return ARITHMETIC[kind](a, more[0]) & MASK[width]

    def _flow(self, thread: Thread, kind: str, operands: list[str]) -> None:
        if kind == "bra":
            thread.pc = self.entries[thread.kernel][1][operands[0]]
        elif kind == "bar":
            thread.waits = True
        elif kind == "nanosleep":
            thread.wakes_ns = self.now_ns + self.random.randrange(2 * int(operands[0]))
        elif kind == "ret":
            thread.ended = True
            self.log.append((self.now_ns, thread.kernel, "end"))

    def _access(self, thread: Thread, opcode: str, operands: list[str]) -> None:
        if opcode.startswith("ld.param"):
            thread.registers[operands[0]] = thread.parameters[operands[1].strip("[]")]
        elif opcode.startswith("st"):
            address = self._address(thread, operands[0])
            self.memory[address] = self._value(thread, operands[1])
            self.log.append((self.now_ns, thread.kernel, f"store {address}"))
        elif opcode.startswith("red"):
            address, value = self._address(thread, operands[0]), self._value(thread, operands[1])
            self.memory[address] = ARITHMETIC[opcode.split(".")[2]](self.memory.get(address, 0), value)
        elif ".v4." in opcode:
            address = self._address(thread, operands[1])
            assert isinstance(address, int)
            assert address % 16 == 0
            for offset, register in enumerate(re.findall(r"\w+", operands[0])):
                thread.registers[register] = self.memory[address + 4 * offset]
            self.log.append((self.now_ns, thread.kernel, f"read {address}"))
        else:
            address = self._address(thread, operands[1])
            thread.registers[operands[0]] = old = self.memory.get(address, 0)
            if opcode.startswith("atom"):
                self.memory[address] = (old + self._value(thread, operands[2])) & MASK["32"]
