"""Executes a PTX kernel as the ISA describes it, thread by thread in random order: for kernels of a few blocks.

One warp is one thread here, so that nothing relies on warps. Memory is a dict of u32 by address; time passes with every
instruction. Blocks begin as others end, at most `capacity` at a time.
"""

import operator
import random
import re
from dataclasses import dataclass, field

MASK = {"32": 2**32 - 1, "64": 2**64 - 1}
COMPARE = {"eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt}
ARITHMETIC = {"add": operator.add, "sub": operator.sub, "xor": operator.xor, "shl": operator.lshift, "min": min}


def parsed(ptx: str) -> tuple[list[tuple[str | None, str, list[str]]], dict[str, int]]:
    """Instructions as (guard, opcode, operands), and where each label stands."""
    body = ptx[ptx.index("{") + 1 : ptx.rindex("}")]
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

    block: int
    special: dict[str, int]
    speed: float  # some are far slower than others
    pc: int = 0
    registers: dict[str, int] = field(default_factory=dict)
    waits: bool = False
    wakes_ns: int = 0
    ended: bool = False


class Machine:
    """One device. `log` holds (ns, block, what) of stores, wide loads and ends."""

    def __init__(self, ptx: str, seed: int, step_ns: int = 5):
        self.code, self.labels = parsed(ptx)
        self.random, self.step_ns, self.now_ns = random.Random(seed), step_ns, 10**9
        self.memory: dict[int | str, int] = {}
        self.log: list[tuple[int, int, str]] = []
        self.pauses: dict[int, int] = {}  # ns after the launch -> ns for which another context has the device

    def launch(self, blocks: int, threads: int, parameters: dict[str, int], capacity: int) -> None:
        """Run a kernel to its end."""
        self.parameters, self.block_threads = parameters, threads
        names = {"%ntid.x": threads, "%nctaid.x": blocks}
        waiting = [
            [Thread(b, {**names, "%tid.x": t, "%ctaid.x": b}, self.random.uniform(0.2, 1) ** 2) for t in range(threads)]
            for b in range(blocks)
        ]  # fmt: skip
        running: list[list[Thread]] = []
        begun_ns, pauses = self.now_ns, sorted(self.pauses.items())
        while waiting or running:
            while waiting and len(running) < capacity:
                running.append(waiting.pop(self.random.randrange(len(waiting))))
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
        guard, opcode, operands = self.code[thread.pc]
        thread.pc += 1
        if guard and not thread.registers[guard]:
            return
        kind, *rest = opcode.split(".")
        width = (rest[-1][-2:] if rest else "") or "32"
        if kind in ("bra", "ret", "bar", "nanosleep"):
            self._flow(thread, kind, operands)
        elif kind in ("ld", "st", "atom"):
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
            thread.pc = self.labels[operands[0]]
        elif kind == "bar":
            thread.waits = True
        elif kind == "nanosleep":
            thread.wakes_ns = self.now_ns + self.random.randrange(2 * int(operands[0]))
        else:
            thread.ended = True
            self.log.append((self.now_ns, thread.block, "end"))

    def _access(self, thread: Thread, opcode: str, operands: list[str]) -> None:
        if opcode.startswith("ld.param"):
            thread.registers[operands[0]] = self.parameters[operands[1].strip("[]")]
        elif opcode.startswith("st"):
            address = self._address(thread, operands[0])
            self.memory[address] = self._value(thread, operands[1])
            self.log.append((self.now_ns, thread.block, f"store {address}"))
        elif ".v4." in opcode:
            address = self._address(thread, operands[1])
            assert isinstance(address, int)
            assert address % 16 == 0
            for offset, register in enumerate(re.findall(r"\w+", operands[0])):
                thread.registers[register] = self.memory[address + 4 * offset]
            self.log.append((self.now_ns, thread.block, f"read {address}"))
        else:
            address = self._address(thread, operands[1])
            thread.registers[operands[0]] = old = self.memory.get(address, 0)
            if opcode.startswith("atom"):
                self.memory[address] = (old + self._value(thread, operands[2])) & MASK["32"]
