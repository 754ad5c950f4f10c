"""The referee's side of the conversation with one worker: ask, check the answer, name the failure."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import torch

from harness import memory
from harness.accounts import Ledger, Used, run_delay_ns, worked_ahead_ns
from harness.called import Burst, Called
from harness.codec import decode, named_bytes
from harness.containment import ALL_ON
from harness.defences import Defences
from harness.devices import available_bytes, free_device_bytes
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
from harness.inputs import InputBuffers, reveal
from harness.meter import Meter, metered
from harness.process import WorkerProcess
from harness.protocol import BadFrame, ChannelClosed, ChannelTimedOut
from harness.sections import SectionMap
from harness.text import printable, printable_all
from harness.timing import Cold, Sample, evictor

WORKER_CHECKS = (  # defences with a part in the worker
    "verified_timer", "copied_at_return", "exact_type", "poisoned_memory", "synchronized_device", "occupied_device",
    "stamped_device",
)  # fmt: skip
START_TIMEOUT_S = 600.0  # for Python, torch and the device to start, on a busy machine too
SLEEP_DRIFT = 0.25  # a device sleeps by its own clock, whose rate changes
REVEAL_NS = 1_000_000  # a held device is held longer by so much; on an H200 an answer, a copy and GO take some 0.4 ms
IDLE_REQUESTS = 3  # the fastest tells what a request costs
OUTPUT_SHARE = 0.25  # of the available memory: the referee holds an output twice, the judge some more
BURST_SHARE = 0.05  # of the available memory: inputs of a burst, which count twice against a worker's limit
DEVICE_BURST_SHARE = 0.12  # of a GPU's free memory: the same, of which the referee keeps contents of its own as well
SPARE_OUTPUTS = 2  # times the last one
OUTPUTS = "outputs"  # the name of the memory that a burst's outputs are delivered in
MAX_BURST_FILES = 512  # each storage of its inputs is one; a process may often open 1024
MAX_OUTPUT_STORAGES = 10_000
MAX_LINE, MAX_DETAIL_LINES = 500, 40
FAILURES = {
    "raised": SubmissionRaised,
    "bad_output": BadOutput,
    "oom": OutOfMemory,
    "device": DeviceFault,
    "tampered": ClockTampered,
}


class Session:
    """One worker with one submission. Methods raise a CallFailed; afterwards `alive` says whether the worker survived."""

    def __init__(
        self,
        process: WorkerProcess,
        submission: Path,
        device: torch.device,
        timeout_s: float,
        defences: Defences = ALL_ON,
        shown_name: str = "",
    ):
        """shown_name: what messages call the submission, which lies in the worker's folder under the problem's name for it."""
        self._process, self._device, self._timeout_s = process, device, timeout_s
        self._submission_name, self._shown_name = submission.name, shown_name or submission.name
        self._sections = SectionMap.of_file(submission)
        self._left_s = timeout_s
        self._defences = defences
        self._evict: Callable[[], Any] = lambda: None
        self._idle_ns = 0  # what an answer takes in which nothing is called
        self._empties_last = False  # whether a device that is held is read empty afterwards: what comes meanwhile is not cached
        self._meter: Meter | None = None
        self.unmetered = ""  # why children that end unseen are on no account
        self.unheld = ""  # why the device is not occupied before a call is timed
        self._completing_ns = 0  # how long the referee itself took to complete the last inputs
        self._answered_at_ns = 0  # when the last answer, and what belongs to it, was the referee's
        self._free_bytes = 0  # of the GPU, before the submission could take any
        self._rested: Used | None = None  # the worker's processor time when it could not know the present contents yet
        self.device_ipc = device.type == "cuda"  # whether device memory is lent by handle; False: copied
        self._outputs: InputBuffers | None = None  # lent device memory for the outputs of a burst

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
        if self._meter:
            self._meter.close()
        if self._outputs:
            self._outputs.close()

    def take_printed(self) -> str:
        """What the submission has printed since the last time, at most the last 16 KiB."""
        return printable(self._process.take_printed())

    def grant_time(self) -> None:
        """A new case begins: the worker may be busy for `timeout_s` again."""
        self._left_s = self._timeout_s

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
            started = self._ask("START", {"device": str(self._device), "cold": vars(cold), "checks": checks}, "started")
            self.unheld = printable(str(started.get("unheld", "")))
            self._empties_last = cold.method == "read" and self._defences.occupied_device and not self.unheld
            self._free_bytes = free_device_bytes(self._device) if self._device.type != "cpu" else 0
            self._idle_ns = min(self._idle_request() for _ in range(IDLE_REQUESTS))
            self._meter, self.unmetered = metered(self._process.pid)
            self._left_s = self._timeout_s

    def _idle_request(self) -> int:
        """Nanoseconds until the worker has answered that it timed nothing."""
        asked_ns = time.perf_counter_ns()
        self._ask("IDLE", {}, "idle")
        return time.perf_counter_ns() - asked_ns

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
            raise SubmissionNotLoaded(f"{self._shown_name}: {error}", detail) from None

    def new_buffers(self) -> InputBuffers:
        """Empty input buffers of the kind that this worker can be lent."""
        return InputBuffers(self.device_ipc, self._defences.private_inputs)

    def room_for(self, inputs: InputBuffers) -> int:
        """How many sets of inputs like these a burst may have. One where a worker would have to copy each of them."""
        if inputs.copied:
            return 1
        on_cpu = self._device.type == "cpu"
        room = BURST_SHARE * available_bytes() if on_cpu else DEVICE_BURST_SHARE * self._free_bytes
        return max(1, min(int(room) // max(1, inputs.nbytes), MAX_BURST_FILES // max(1, inputs.files)))

    def room_for_outputs(self, like: Called) -> int:
        """How many calls with outputs like this one a burst may have, at least two. The referee holds all of them."""
        room = DEVICE_BURST_SHARE * self._free_bytes if self.device_ipc else max_output_bytes()
        return max(2, int(room) // max(1, SPARE_OUTPUTS * like.nbytes))

    def lend_for_outputs(self, calls: int, like: Called) -> None:
        """Lend device memory for the outputs of as many calls, twice as large in case that contents tell their sizes.

        Raises what says that memory ran out. Without lent memory (`device_ipc`) nothing.
        """
        total = SPARE_OUTPUTS * memory.layout([nbytes for nbytes, _ in like.storages] * calls)[1]
        if not self.device_ipc or (self._outputs and self._outputs.nbytes >= total):
            return
        if self._outputs:
            self.unmap(OUTPUTS)
            self._outputs.close()
        self._outputs = self.new_buffers()
        self._outputs.fill(lambda: torch.zeros(total, dtype=torch.uint8, device=self._device))
        self._outputs.forget()
        self.map(OUTPUTS, self._outputs)

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

    def rest(self) -> None:
        """Contents that the worker does not know yet come next: what it does from now on is done for the next call."""
        self._rested = self._used()

    def call(
        self,
        inputs: str,
        timed: bool = False,
        sleep_ns: int = 0,
        describe: bool = False,
        take: bool = False,
        late: InputBuffers | None = None,
    ) -> Called:
        """Run custom_kernel once on lent inputs; `timed`: caches emptied first, by the device's clock.

        `take`: the output at once, before anybody could rewrite the worker's copy of it unaccounted. `late`: the inputs, whose
        contents are not complete yet: where the device is held they become so only then.
        """
        complete = self._completion(late, sleep_ns)
        sleep_ns += REVEAL_NS if complete else 0
        fields = {"inputs": inputs, "timed": timed, "sleep_ns": sleep_ns, "describe": describe, "held": complete is not None}
        rested = self._rested or self._used()
        if timed:
            self._evict()
        asked, delay_ns, asked_at_ns = self._used_on_cpu(), self._delay_ns(), time.perf_counter_ns()
        called = self._called(self._ask("CALL", fields, "called", held=complete))
        output = self.take(called) if take else None
        wall_ns = self._answered_at_ns - asked_at_ns - sleep_ns
        wall_ns -= max(0, self._completing_ns - REVEAL_NS) if complete else 0
        waited_ns, answered = self._waited_ns(delay_ns, rested)
        if timed and asked:
            called = replace(called, used_ns=answered.since(asked), ahead_ns=self._ahead_ns(asked.since(rested)))
        waited_ns += int(SLEEP_DRIFT * sleep_ns)
        return replace(called, wall_ns=max(0, wall_ns), waited_ns=waited_ns, taken=take, output=output)

    def _completion(self, late: InputBuffers | None, sleep_ns: int) -> Callable[[], None] | None:
        """What completes the inputs while the device is held; None if that is done now."""
        if late and sleep_ns and self._empties_last and self.device_ipc:
            return late.staged()
        reveal([late] if late else [])
        return None

    def burst(self, inputs: Sequence[str], late: Sequence[InputBuffers] = ()) -> Burst:
        """Run custom_kernel in a row, warm, on each of the lent inputs that are named; `late`: those whose contents are not
        complete before the clock runs.

        All outputs are taken at once: none can be made when it is known which ones are judged. From a GPU that lends no
        memory for them that would take longer than the calls; there they stay in the worker until the next call.
        """
        rested = self._rested or self._used()
        asked, delay_ns, asked_at_ns = self._used_on_cpu(), self._delay_ns(), time.perf_counter_ns()
        reveal(late)
        called = self._calls_of(self._ask("BURST", {"inputs": list(inputs)}, "burst").get("outputs"), len(inputs))
        if self._device.type == "cpu" or self._outputs:
            called = self._all_taken(called)
        wall_ns, (waited_ns, _) = self._answered_at_ns - asked_at_ns, self._waited_ns(delay_ns, rested)
        ahead_ns = self._ahead_ns(asked.since(rested)) if asked else 0
        return Burst(called, wall_ns + ahead_ns, waited_ns)

    def _calls_of(self, outputs: Any, calls: int) -> tuple[Called, ...]:
        """A burst's calls, by their outputs as the worker describes them."""
        if not isinstance(outputs, list) or len(outputs) != calls:
            raise self._violated(f"a burst that is not {calls} outputs")
        described, nothing = enumerate(map(self._output_of, outputs)), Sample(0, 0, False)
        called = tuple(Called(nothing, tree, storages, index=index) for index, (tree, storages) in described)
        self._forbid_more_than_fits([max(called, key=lambda one: one.nbytes)])
        return called

    def _all_taken(self, calls: tuple[Called, ...]) -> tuple[Called, ...]:
        if not self._outputs:
            self._forbid_more_than_fits(calls)
        taken = self._take(calls, self._outputs)
        return tuple(replace(called, taken=True, output=output) for called, output in zip(calls, taken, strict=True))

    def _called(self, answer: dict[str, Any]) -> Called:
        times = {name: self._natural(answer, name) for name in ("elapsed_ns", "host_ns")}
        tree, storages = self._output_of(answer.get("output"))
        sample = Sample(**times, exposed=answer.get("exposed") is True)
        called = Called(sample, tree, storages, printable_all(answer.get("description")))
        self._forbid_more_than_fits((called,))
        return called

    def _ahead_ns(self, at_rest_ns: int) -> int:
        return worked_ahead_ns(at_rest_ns) if self._defences.quiet_worker else 0

    def _used(self) -> Used:
        """Processor time of the worker and all that it starts, as far as the kernel says."""
        if self._meter:
            return Used.metered(self._meter.used_ns, self._process.pid)
        return Used.by(self._process.pid, self._process.root_pid)

    def _used_on_cpu(self) -> Used | None:
        """The same where it says something of a call: waiting for a GPU uses it too, and asking would take time there."""
        return self._used() if self._device.type == "cpu" else None

    def _delay_ns(self) -> int:
        """How long this thread, and on a CPU the worker's, have waited for a processor so far."""
        return run_delay_ns("thread-self") + (run_delay_ns(self._process.pid) if self._device.type == "cpu" else 0)

    def _waited_ns(self, delay_ns: int, rested: Used) -> tuple[int, Used]:
        """The waiting since `delay_ns` was taken, less what the worker's others have used of processors since it rested: who
        starts those can make both wait. And what all have used by now."""
        waited_ns, now, self._rested = self._delay_ns() - delay_ns, self._used(), None
        return max(0, waited_ns - now.others_since(rested)), now

    def open_ledger(self) -> Ledger:
        """Accounts for the calls of one case."""
        return Ledger(self._idle_ns, on_device=self._device.type != "cpu")

    def believe(self, ledger: Ledger) -> None:
        """Raises ClockTampered if the times in a ledger cannot be true."""
        if self._defences.referee_clock and (contradiction := ledger.contradiction()):
            self._process.kill()
            raise ClockTampered(f"the submission's process {contradiction}: its clock is not to be believed")

    def changed_inputs(self, name: str, inputs: InputBuffers) -> list[int]:
        """Positions of the input tuple whose contents are no longer the referee's."""
        changed = self._ask("COMPARE", {"name": name}, "compared").get("changed")
        if not isinstance(changed, list) or not all(type(index) is int for index in changed):
            raise self._violated("a comparison of inputs that is no list of numbers")
        return inputs.positions({*changed, *inputs.changed_on_device()})

    def take(self, called: Called) -> Any:
        """The last call's output, copied into memory that only the referee can reach."""
        return self._take((called,))[0]

    def _take(self, calls: Sequence[Called], lent: InputBuffers | None = None) -> list[Any]:
        """The outputs of the last call or burst: delivered in lent device memory if they fit, else through a file."""
        storages = [storage for called in calls for storage in called.storages]
        offsets, total = memory.layout([nbytes for nbytes, _ in storages])
        asked = {"calls": [called.index for called in calls], "offsets": offsets, "nbytes": total}
        fitting = lent if lent and total <= lent.nbytes else None
        taken = self._delivered(asked, fitting) if fitting else self._taken_through_a_file(asked)
        self._answered_at_ns = time.perf_counter_ns()
        sources = zip(offsets, storages, strict=True)
        copies = iter([taken[at : at + size].to(device, copy=True).untyped_storage() for at, (size, device) in sources])
        with self._description_read():
            return [decode(called.tree, list(islice(copies, len(called.storages)))) for called in calls]

    def _taken_through_a_file(self, asked: dict[str, Any]) -> torch.Tensor:
        """Outputs as bytes in host memory, copied out of a file that the worker can still write."""
        fd = memory.create_memfd("kernelproof-output", asked["nbytes"])
        try:
            shared = memory.byte_view(memory.map_shared(fd, asked["nbytes"]))  # later the worker could have sealed it
            self._ask("TAKE", asked, "taken", (fd,))
        finally:
            os.close(fd)
        return shared.clone()

    def _delivered(self, asked: dict[str, Any], lent: InputBuffers) -> torch.Tensor:
        """Outputs as bytes in device memory, copied out of memory that the worker can still write."""
        self._ask("TAKE", {**asked, "into": OUTPUTS}, "taken")
        copy = memory.byte_view(lent.storages[0])[: asked["nbytes"]].clone()
        torch.cuda.synchronize()
        return copy

    def profile(self, inputs: str, calls: int, trace_fd: int) -> list[dict[str, Any]]:
        """Profile `calls` calls: the operator table, and the chrome trace written to `trace_fd`."""
        rows = self._ask("PROFILE", {"inputs": inputs, "calls": calls}, "profiled", (trace_fd,)).get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows):
            raise self._violated("a profile that is not a table")
        numbers = ("count", "device_ns", "host_ns")
        return [{"name": printable(row["name"]), **{key: self._natural(row, key) for key in numbers}} for row in rows]

    def _ask(
        self,
        kind: str,
        fields: dict[str, Any],
        expected: str,
        fds: tuple[int, ...] = (),
        held: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """The answer to a request; `held` is called as soon as the worker says that its device is held."""
        asked_at = time.monotonic()
        self._send(kind, fields, fds)
        if held:
            self._receive("held", self._left_s)
            held_at_ns = time.perf_counter_ns()
            held()
            self._completing_ns = time.perf_counter_ns() - held_at_ns
            self._send("GO", {})
        answer = self._receive(expected, max(0.0, self._left_s - (time.monotonic() - asked_at)))
        self._answered_at_ns = time.perf_counter_ns()
        self._left_s = max(0.0, self._left_s - (time.monotonic() - asked_at))
        return answer

    def _send(self, kind: str, fields: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        with self._failures_named():
            self._process.channel.send(kind, fields, fds, timeout_s=self._left_s)

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
                with self._description_read():
                    if self._counts_bytes and sum(nbytes for nbytes, _ in storages) > named_bytes(tree):
                        raise self._violated("an output with more bytes than its tensors have")
                return tree, storages
        raise self._violated("an output that is not described")

    @property
    def _counts_bytes(self) -> bool:
        """Whether the referee's clock allows time for an output's bytes, and those are no more than its tensors'."""
        return self._defences.referee_clock and self._defences.copied_at_return

    @contextlib.contextmanager
    def _description_read(self) -> Iterator[None]:
        try:
            yield
        except CodecError as error:
            raise self._violated(f"an output whose description is wrong: {error}") from None

    def _forbid_more_than_fits(self, calls: Sequence[Called]) -> None:
        if (total := sum(called.nbytes for called in calls)) > (limit := max_output_bytes()):
            whose = "custom_kernel's output has" if len(calls) == 1 else f"{len(calls)} outputs have"
            raise BadOutput(f"{whose} {total >> 20} MiB; the referee can hold {limit >> 20} MiB")

    def _storage_of(self, entry: Any) -> tuple[int, torch.device]:
        match entry:
            case [int(nbytes), str(device)] if nbytes >= 0 and device in ("cpu", str(self._device)):
                return nbytes, torch.device(device)
        raise self._violated(f"an output storage {str(entry)[:60]}")


def max_output_bytes() -> int:
    """What the referee can hold without running out of memory, whatever a submission returns."""
    return int(OUTPUT_SHARE * available_bytes())
