"""The referee's side of the conversation with one worker: ask, check the answer, name the failure."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from harness import memory
from harness.accounts import Ledger, cpu_time_ns, worked_ahead_ns
from harness.codec import decode
from harness.containment import ALL_ON
from harness.defences import Defences
from harness.errors import (
    BadOutput,
    CallFailed,
    ClockTampered,
    CodecError,
    DeviceFault,
    OutOfMemory,
    ProtocolViolated,
    SubmissionNotLoaded,
    SubmissionRaised,
    WorkerDied,
    WorkerTimedOut,
)
from harness.inputs import InputBuffers
from harness.process import WorkerProcess
from harness.protocol import BadFrame, ChannelClosed, ChannelTimedOut
from harness.sections import SectionMap
from harness.text import printable, printable_all
from harness.timing import Cold, Sample, evictor

WORKER_CHECKS = ("verified_timer", "copied_at_return", "exact_type", "poisoned_memory")  # defences with a part in the worker
START_TIMEOUT_S = 600.0  # for Python, torch and the device to start, on a busy machine too
MAX_OUTPUT_BYTES = 16 << 30
MAX_OUTPUT_STORAGES = 10_000
ALIGNMENT_BYTES = 256
MAX_LINE, MAX_DETAIL_LINES = 500, 40
FAILURES = {
    "raised": SubmissionRaised,
    "bad_output": BadOutput,
    "oom": OutOfMemory,
    "device": DeviceFault,
    "tampered": ClockTampered,
}


@dataclass(frozen=True)
class Called:
    """One call's sample, and the shape of its output, which stays in the worker until the next call."""

    sample: Sample
    tree: Any
    storages: tuple[tuple[int, torch.device], ...]  # bytes and device of each
    description: Any  # what the submission's describe() returned: reported, never trusted


class Session:
    """One worker with one submission. Methods raise a CallFailed; afterwards `alive` says whether the worker survived."""

    def __init__(
        self,
        process: WorkerProcess,
        submission: Path,
        device: torch.device,
        timeout_s: float,
        defences: Defences = ALL_ON,
    ):
        self._process, self._device, self._timeout_s = process, device, timeout_s
        self._submission_name = submission.name
        self._sections = SectionMap.of_file(submission)
        self._left_s = timeout_s
        self._defences = defences
        self._evict: Callable[[], Any] = lambda: None
        self._ledger = Ledger()
        self.device_ipc = device.type == "cuda"  # whether device memory is lent by handle; False: copied

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the worker can be asked again."""
        return self._process.alive

    def close(self) -> None:
        """End the worker and everything it started."""
        self._process.close()

    def take_printed(self) -> str:
        """What the submission has printed since the last time, at most the last 16 KiB."""
        return printable(self._process.take_printed())

    def grant_time(self) -> None:
        """A new case begins: the worker may be busy for `timeout_s` again, and its accounts start anew."""
        self._left_s, self._ledger = self._timeout_s, Ledger()

    def start(self, cold: Cold) -> None:
        """Build the clock, before the submission is there. Raises SubmissionNotLoaded if the worker cannot.

        A CPU's caches are emptied by the referee, so that the worker has nothing to do before the call.
        """
        if self._device.type == "cpu":
            self._evict, cold = evictor(self._device, cold), Cold("none")
        checks = {name: getattr(self._defences, name) for name in WORKER_CHECKS}
        with self._nothing_loaded():
            self._receive("ready", START_TIMEOUT_S)
            self._left_s = START_TIMEOUT_S  # a device's context too is none of the submission's time
            self._ask("START", {"device": str(self._device), "cold": vars(cold), "checks": checks}, "started")
            self._left_s = self._timeout_s

    def load(self) -> int:
        """Import the submission; the nanoseconds it took. Raises SubmissionNotLoaded, whatever went wrong."""
        with self._nothing_loaded():
            return self._natural(self._ask("LOAD", {"submission": self._submission_name}, "loaded"), "load_ns")

    @contextlib.contextmanager
    def _nothing_loaded(self) -> Iterator[None]:
        try:
            yield
        except CallFailed as error:
            detail = "\n".join(filter(None, (error.detail, self.take_printed().strip())))
            raise SubmissionNotLoaded(f"{self._submission_name}: {error}", detail) from None

    def new_buffers(self) -> InputBuffers:
        """Empty input buffers of the kind that this worker can be lent."""
        return InputBuffers(self.device_ipc, self._defences.private_inputs)

    def map(self, name: str, inputs: InputBuffers) -> None:
        """Lend the worker a case's inputs under a name."""
        fields, fds = inputs.lend()
        self._ask("MAP", {"name": name, **fields}, "mapped", fds)

    def refresh(self, name: str) -> None:
        """Tell the worker that the contents of lent inputs are new."""
        self._ask("REFRESH", {"name": name}, "mapped")

    def unmap(self, name: str) -> None:
        """Take lent inputs back."""
        self._ask("UNMAP", {"name": name}, "unmapped")

    def call(self, inputs: str, timed: bool = False, sleep_ns: int = 0, describe: bool = False) -> Called:
        """Run custom_kernel once on lent inputs; `timed`: caches emptied first, by the device's clock."""
        fields = {"inputs": inputs, "timed": timed, "sleep_ns": sleep_ns, "describe": describe}
        before_ns = self._cpu_time_ns()
        if timed:
            self._evict()
        asked_ns = self._cpu_time_ns()
        answer = self._ask("CALL", fields, "called")
        answered_ns = self._cpu_time_ns()
        exposed = answer.get("exposed") is True
        elapsed_ns = self._natural(answer, "elapsed_ns")
        if timed and before_ns and asked_ns and answered_ns:
            elapsed_ns = self._accounted(elapsed_ns, asked_ns - before_ns, answered_ns - asked_ns)
        sample = Sample(elapsed_ns, self._natural(answer, "host_ns"), exposed)
        tree, storages = self._output_of(answer.get("output"))
        return Called(sample, tree, storages, printable_all(answer.get("description")))

    def _cpu_time_ns(self) -> int | None:
        """The worker's processor time. On a GPU it says nothing: waiting for the device uses it too."""
        return cpu_time_ns(self._process.pid) if self._device.type == "cpu" else None

    def _accounted(self, elapsed_ns: int, at_rest_ns: int, within_ns: int) -> int:
        """The time of a call with what was worked ahead for it. Raises ClockTampered if it cannot be true."""
        self._ledger.enter(elapsed_ns, within_ns)
        if self._defences.referee_clock and (contradiction := self._ledger.contradiction()):
            self._process.kill()
            raise ClockTampered(f"the submission's process {contradiction}: its clock is not to be believed")
        return elapsed_ns + (worked_ahead_ns(at_rest_ns) if self._defences.quiet_worker else 0)

    def take(self, called: Called) -> Any:
        """The last call's output, copied into memory that only the referee can reach."""
        offsets, total = _layout([nbytes for nbytes, _ in called.storages])
        fd = memory.create_memfd("kernelproof-output", total)
        try:
            self._ask("TAKE", {"offsets": offsets, "nbytes": total}, "taken", (fd,))
            shared = _bytes_of(memory.map_shared(fd, total))
        finally:
            os.close(fd)
        sources = zip(offsets, called.storages, strict=True)
        copies = [shared[offset : offset + size].to(device, copy=True).untyped_storage() for offset, (size, device) in sources]
        try:
            return decode(called.tree, copies)
        except CodecError as error:
            raise self._violated(f"an output whose description is wrong: {error}") from None

    def profile(self, inputs: str, calls: int, trace_fd: int) -> list[dict[str, Any]]:
        """Profile `calls` calls: the operator table, and the chrome trace written to `trace_fd`."""
        rows = self._ask("PROFILE", {"inputs": inputs, "calls": calls}, "profiled", (trace_fd,)).get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows):
            raise self._violated("a profile that is not a table")
        numbers = ("count", "device_ns", "host_ns")
        return [{"name": printable(row["name"]), **{key: self._natural(row, key) for key in numbers}} for row in rows]

    def _ask(self, kind: str, fields: dict[str, Any], expected: str, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        asked_at = time.monotonic()
        with self._failures_named():
            self._process.channel.send(kind, fields, fds, timeout_s=self._left_s)
        answer = self._receive(expected, self._left_s)
        self._left_s = max(0.0, self._left_s - (time.monotonic() - asked_at))
        return answer

    def _receive(self, expected: str, timeout_s: float) -> dict[str, Any]:
        with self._failures_named():
            frame = self._process.channel.receive(timeout_s=timeout_s)
        if frame.kind == "failed":
            raise self._failure(frame.fields)
        if frame.kind != expected:
            raise self._violated(f"the answer {frame.kind[:40]!r} where {expected!r} belongs")
        return frame.fields

    @contextlib.contextmanager
    def _failures_named(self) -> Iterator[None]:
        try:
            yield
        except ChannelTimedOut:
            self._process.kill()
            limit = f"{self._timeout_s:g} s"
            raise WorkerTimedOut(f"no answer within {limit}; --timeout-s raises the limit") from None
        except ChannelClosed:
            raise self._died() from None
        except BadFrame as error:
            raise self._violated(str(error)) from None

    def _died(self) -> WorkerDied:
        how = self._process.obituary()
        printed = self.take_printed()
        self._process.kill()
        return WorkerDied(f"the submission {how}", self._sections.shorten_crash(printed))

    def _violated(self, what: str) -> ProtocolViolated:
        self._process.kill()
        return ProtocolViolated(f"the submission's process sent {what}; only the harness's own worker may answer")

    def _failure(self, fields: dict[str, Any]) -> CallFailed:
        match printable_all(fields):
            case {"category": str(category), "type": str(kind), "message": str(message), "frames": list(frames)} if (
                category in FAILURES
            ):
                first, *rest = message.splitlines() or [""]
                text = f"{kind}: {first}" if kind and first else kind or first
                return FAILURES[category](text[:MAX_LINE], "\n".join([*self._traceback(frames), *rest[-MAX_DETAIL_LINES:]]))
        return self._violated("a failure that is described wrongly")

    def _traceback(self, frames: list[Any]) -> list[str]:
        """The author's own frames, in the files that a generated submission was made of."""
        lines = []
        for frame in frames[:50]:
            match frame:
                case [str(name), int(line), str(function), str(text)]:
                    place = self._sections.locate(name, line)
                    lines.append(f"  {place}{f', in {function}' if function else ''}\n    {text}")
        return lines

    def _natural(self, fields: dict[str, Any], key: str) -> int:
        value = fields.get(key)
        if type(value) is not int or not 0 <= value < 1 << 62:
            raise self._violated(f"{key} = {str(value)[:40]!r}")
        return value

    def _output_of(self, output: Any) -> tuple[Any, tuple[tuple[int, torch.device], ...]]:
        match output:
            case {"tree": tree, "storages": list(entries)} if len(entries) <= MAX_OUTPUT_STORAGES:
                storages = tuple(self._storage_of(entry) for entry in entries)
                if sum(nbytes for nbytes, _ in storages) <= MAX_OUTPUT_BYTES:
                    return tree, storages
        raise self._violated(f"an output that is not described, or of more than {MAX_OUTPUT_BYTES >> 30} GiB")

    def _storage_of(self, entry: Any) -> tuple[int, torch.device]:
        match entry:
            case [int(nbytes), str(device)] if nbytes >= 0 and device in ("cpu", str(self._device)):
                return nbytes, torch.device(device)
        raise self._violated(f"an output storage {str(entry)[:60]}")


def _layout(sizes: list[int]) -> tuple[list[int], int]:
    """Aligned offsets of consecutive pieces, and their total."""
    offsets, total = [], 0
    for size in sizes:
        offsets.append(total)
        total += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return offsets, total


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """A storage as a uint8 tensor."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))
