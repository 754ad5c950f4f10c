"""This machine's devices, one process each: the search waits for whichever is done first.

A device that stops answering gets a new process and its Ask is measured again; after three losses without an answer between
them it is left alone. Processes end with their parent, however that ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from harness import libc
from sweep.bench_config import BenchConfig
from sweep.errors import CaseRefused, DeviceLost, KernelsNotLoaded, SweepError
from sweep.variant import Ask, Machine, Outcome

MAX_LOSSES = 3  # of one device, without an answer between them
REMEDY = "what was measured is stored: start again to go on"
HOPELESS: dict[str, type[SweepError]] = {"kernels": KernelsNotLoaded, "case": CaseRefused}  # by what a process says
CONTEXT = multiprocessing.get_context("spawn")


def real_bench(config: BenchConfig) -> Any:
    """A Bench; what it needs is imported by the process that measures alone."""
    from sweep.bench import Bench

    return Bench(config)


def serve_bench(link: Connection, config: BenchConfig, make: Callable[[BenchConfig], Any] = real_bench) -> None:
    """A device's process: answers Asks until the other end hangs up."""
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    try:
        with make(config) as bench:
            link.send(("machine", bench.machine))
            while True:
                kind, payload = link.recv()
                link.send(("answer", bench.measure(payload)) if kind == "measure" else ("prepared", bench.prepare(payload)))
    except EOFError:
        pass
    except Exception as error:
        kind = next((kind for kind, cls in HOPELESS.items() if isinstance(error, cls)), "lost")
        with contextlib.suppress(OSError):
            link.send((kind, str(error) or type(error).__name__))


@dataclass
class DeviceProcess:
    """One device's process and what it is busy with."""

    config: BenchConfig
    make: Callable[[BenchConfig], Any]
    losses: int = 0
    job: int | None = None  # index of the Ask that it works on
    process: SpawnProcess | None = None
    link: Connection | None = None

    def start(self) -> None:
        """A new process, the old one ended. Its first message is its machine."""
        self.stop()
        self.link, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=serve_bench, args=(theirs, self.config, self.make))
        self.process.start()
        theirs.close()

    def receive(self) -> tuple[str, Any]:
        """What the process says next; `lost` if it has ended."""
        assert self.link is not None
        try:
            return self.link.recv()
        except (EOFError, OSError):
            code = self.process.exitcode if self.process else None
            return "lost", f"its process ended{'' if code is None else f' with exit status {code}'}"

    def stop(self) -> None:
        """Hang up; end the process if it does not end by itself."""
        if self.process is None or self.link is None:
            return
        self.link.close()
        self.process.join(timeout=5.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process = self.link = None


class LocalExecutor:
    """An Executor over the devices of this machine. `make` builds what measures; tests give their own.

    Raises DeviceLost if no device can be used, KernelsNotLoaded.
    """

    def __init__(self, configs: Sequence[BenchConfig], make: Callable[[BenchConfig], Any] = real_bench):
        self._devices = [DeviceProcess(config, make) for config in configs]
        self._compiles = any(config.compiled for config in configs)
        for device in self._devices:
            device.start()
        machines = [machine for device in list(self._devices) if (machine := self._greet(device))]
        self._refuse_mixture(machines)
        self.machine = machines[0]

    def run(self, asks: Sequence[Ask]) -> Iterator[tuple[int, list[Outcome]]]:
        """See Executor."""
        if self._compiles:
            self._prepare(asks)
        queue, done = deque(range(len(asks))), 0
        while done < len(asks):
            self._hand_out(queue, asks)
            for device in self._ready():
                index, device.job = device.job, None
                assert index is not None
                kind, payload = device.receive()
                if kind == "answer":
                    done, device.losses = done + 1, 0
                    yield index, payload
                else:
                    queue.appendleft(index)
                    self._after_loss(device, kind, payload)

    def close(self) -> None:
        """End every process."""
        for device in self._devices:
            device.stop()

    def _hand_out(self, queue: deque[int], asks: Sequence[Ask]) -> None:
        for device in self._devices:
            if queue and device.job is None and device.link is not None:
                device.job = queue.popleft()
                with contextlib.suppress(OSError):  # a process that has ended says so when it is asked
                    device.link.send(("measure", asks[device.job]))

    def _ready(self) -> list[DeviceProcess]:
        """Busy devices that have something to say."""
        links = {device.link: device for device in self._devices if device.job is not None and device.link is not None}
        return [links[link] for link in wait(list(links))]  # type: ignore[index]

    def _prepare(self, asks: Sequence[Ask]) -> None:
        """One device compiles for all: the caches are the machine's."""
        device = self._devices[0]
        assert device.link is not None
        with contextlib.suppress(OSError):
            device.link.send(("prepare", list(asks)))
        kind, payload = device.receive()
        if kind != "prepared":
            self._after_loss(device, kind, payload)

    def _greet(self, device: DeviceProcess) -> Machine | None:
        """A new process's machine; None if the device cannot be used, which is then left alone."""
        while True:
            kind, payload = device.receive()
            if kind == "machine":
                return payload
            self._count_loss(device, kind, payload)
            if device not in self._devices:
                return None
            device.start()

    def _after_loss(self, device: DeviceProcess, kind: str, reason: str) -> None:
        """A new process for the device, unless it was lost too often."""
        self._count_loss(device, kind, reason)
        if device in self._devices:
            device.start()
            self._greet(device)

    def _count_loss(self, device: DeviceProcess, kind: str, reason: str) -> None:
        """Leave a device alone after too many losses. Raises what no device can mend, DeviceLost if it was the last."""
        if kind in HOPELESS:
            raise HOPELESS[kind](reason)
        device.losses += 1
        if device.losses >= MAX_LOSSES:
            device.stop()
            self._devices.remove(device)
        if not self._devices:
            raise DeviceLost(f"{device.config.device} cannot be used: {reason}; {REMEDY}")

    def _refuse_mixture(self, machines: Sequence[Machine]) -> None:
        names = sorted({machine.name for machine in machines})
        if len(names) > 1:
            self.close()
            raise SweepError(f"devices of several kinds ({', '.join(names)}): their times do not compare; use --device cuda:N")
