"""The worker: owns nothing but the submission. Started by harness.jail in the submission's folder.

It answers the requests of harness.protocol until the referee closes the socket. Nothing here is trusted by the
referee: a submission can change all of it.
"""

import contextlib
import ctypes
import importlib.util
import json
import linecache
import mmap
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from harness import blocker, codec, cuda_vmm, memory, protocol, seal, timing
from harness.codec import Encoded, decode, encode, snapshot, tensors
from harness.errors import CodecError
from harness.protocol import BadFrame, Channel, ChannelClosed, Frame
from harness.seal import Seal
from harness.timing import Cold, Sample, Timer, make_timer

MADV_POPULATE_READ = 22
MAX_FRAMES, MAX_TEXT = 20, 4000
Answer = tuple[str, dict[str, Any]]


class Inputs:
    """The referee's buffers as this process sees them. Host memory is mapped privately: writes stay here."""

    def __init__(self, tree: Any, storages: list[dict[str, Any]], fds: list[int], device: torch.device, private: bool):
        self._private = private
        self._mappings: list[mmap.mmap] = []
        self._copies: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = []
        self._originals: dict[int, torch.UntypedStorage] = {}  # by index: what the referee sees
        files = iter(fds)
        self._storages = [self._open(index, entry, files, device) for index, entry in enumerate(storages)]
        self.value = decode(tree, self._storages)
        self.refresh()

    def _open(self, index: int, entry: dict[str, Any], files: Iterator[int], device: torch.device) -> torch.UntypedStorage:
        if entry["memory"] == "ipc":
            return memory.import_device_storage(entry["handle"], device)
        fd = next(files)
        if entry["memory"] == "vmm":
            return cuda_vmm.open_shared(fd, entry["nbytes"], device)
        host, mapping = memory.map_inputs(fd, entry["nbytes"], self._private)
        self._mappings.append(mapping)
        if entry["device"] == "cpu":
            self._originals[index] = memory.map_inputs(fd, entry["nbytes"], private=True)[0]
            return host
        copy = torch.UntypedStorage(entry["nbytes"], device=torch.device(entry["device"]))
        self._copies.append((copy, host))
        self._originals[index] = host
        return copy

    def changed(self) -> list[int]:
        """Indices of the storages whose bytes are no longer the referee's; lent device memory it compares itself."""
        return [index for index, original in self._originals.items() if not memory.equal(self._storages[index], original)]

    def refresh(self) -> None:
        """See the referee's present contents: drop this process's copies of pages it wrote, fault every page in."""
        for mapping in self._mappings:
            mapping.madvise(mmap.MADV_DONTNEED)
            with contextlib.suppress(OSError):  # before Linux 5.14 the first call takes the faults
                mapping.madvise(MADV_POPULATE_READ)
        for copy, host in self._copies:
            copy.copy_(host)


class Worker:
    """The submission, its mapped inputs and its last output."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._device = torch.device("cpu")
        self._module: Any = None
        self._timer: Timer | None = None
        self._inputs: dict[str, Inputs] = {}
        self._outputs: list[Encoded] = []  # of the last call, or of a burst
        self._returned: Any = None  # the submission's own output, poisoned once it was taken
        self._seal: Seal | None = None
        self._checks: dict[str, bool] = {}

    def answer(self, frame: Frame) -> Answer:
        """Do what one request asks."""
        handlers: dict[str, Callable[..., Answer]] = {
            "START": self._start, "LOAD": self._load, "MAP": self._map, "REFRESH": self._refresh, "UNMAP": self._unmap,
            "IDLE": self._idle, "CALL": self._call, "BURST": self._burst, "TAKE": self._take, "COMPARE": self._compare,
            "PROFILE": self._profile,
        }  # fmt: skip
        return handlers[frame.kind](frame.fds, **frame.fields)

    def _start(self, fds: list[int], device: str, cold: dict[str, Any], checks: dict[str, bool]) -> Answer:
        self._device, self._checks = torch.device(device), checks
        if self._device.type != "cpu":
            torch.cuda.set_device(self._device)
        ways = {way: checks[f"{way}_device"] for way in ("synchronized", "occupied", "stamped")}
        self._timer = make_timer(self._device, Cold(**cold), **ways)
        if checks["verified_timer"]:
            # What a launch takes, what a frame goes through, and the Python around a device's events.
            used = (ctypes, json, json.encoder, socket, torch.cuda.streams)
            self._seal = Seal(*self._timer.parts, blocker, timing, codec, protocol, seal, sys.modules[__name__], *used)
        return "started", {"unheld": self._timer.unheld}

    def _load(self, fds: list[int], submission: str) -> Answer:
        assert self._timer is not None
        sample, self._module = self._timer.run(lambda: _import_file(Path(submission)))
        if not callable(getattr(self._module, "custom_kernel", None)):
            return _failed("raised", "defines no function custom_kernel(data)")
        return "loaded", {"load_ns": sample.elapsed_ns}

    def _map(self, fds: list[int], name: str, tree: Any, storages: list[dict[str, Any]], private: bool) -> Answer:
        self._inputs[name] = Inputs(tree, storages, fds, self._device, private)
        return "mapped", {}

    def _refresh(self, fds: list[int], name: str) -> Answer:
        self._inputs[name].refresh()
        return "mapped", {}

    def _unmap(self, fds: list[int], name: str) -> Answer:
        self._inputs.pop(name, None)
        return "unmapped", {}

    def _idle(self, fds: list[int]) -> Answer:
        """What a timed call costs beside the call."""
        assert self._timer is not None
        self._timer.time(lambda: None, 0, self._keep)
        return self._changed() or ("idle", {})

    def _changed(self) -> Answer | None:
        """The answer if the clock or the channel is not what it was."""
        changed = self._seal.broken() if self._seal else None
        return _failed("tampered", f"the worker's clock or channel was changed: {changed}") if changed else None

    def _compare(self, fds: list[int], name: str) -> Answer:
        return "compared", {"changed": self._inputs[name].changed()}

    def _call(self, fds: list[int], inputs: str, timed: bool, sleep_ns: int, describe: bool, held: bool) -> Answer:
        data, timer = self._inputs[inputs].value, self._timer
        assert timer is not None
        call = lambda: self._module.custom_kernel(data)  # noqa: E731
        told = self._tell_held if held else timing.nothing
        sample, output = timer.time(call, sleep_ns, self._keep, told) if timed else timer.run(call, self._keep)
        if tampered := self._changed():
            return tampered
        description = self._describe(data) if describe else None
        return self._called(sample, output, description)

    def _tell_held(self) -> None:
        """Tell the referee that the device is held, and wait until the contents are complete."""
        self._channel.send("held", {})
        self._channel.receive()

    def _keep(self, output: Any) -> Any:
        """The copy of an output that the referee will get."""
        self._returned = output if self._checks["poisoned_memory"] else None
        return snapshot(output) if self._checks["copied_at_return"] else output

    def _called(self, sample: Sample, output: Any, description: Any) -> Answer:
        if not self._checks["exact_type"]:
            output = _touched(output)
        try:
            self._outputs = [encode(output)]
        except (CodecError, RecursionError) as error:
            return _failed("bad_output", f"custom_kernel's output {error}")
        return "called", {**vars(sample), "output": _shape(self._outputs[0]), "description": description}

    def _burst(self, fds: list[int], inputs: list[str]) -> Answer:
        """A call on each of the inputs that are named, nothing between them but the copy of each output."""
        values, kernel = [self._inputs[name].value for name in inputs], self._module.custom_kernel
        assert self._timer is not None
        _, outputs = self._timer.run(lambda: timing.in_a_row(kernel, values, self._keep))
        try:
            self._outputs = [encode(output) for output in outputs]
        except (CodecError, RecursionError) as error:
            return _failed("bad_output", f"custom_kernel's output {error}")
        return "burst", {"outputs": list(map(_shape, self._outputs))}

    def _describe(self, data: Any) -> Any:
        """What the submission says about itself, if it says anything that is JSON."""
        try:
            return json.loads(json.dumps(self._module.describe(data), allow_nan=False))
        except Exception:
            return None  # optional, informative, and never worth failing a run

    def _take(self, fds: list[int], calls: list[int], offsets: list[int], nbytes: int, into: str = "") -> Answer:
        """Copy outputs into the referee's buffer: the file that came along, or lent memory by its name. What was not copied
        as its call returned is complete by now, as it is for evaluators that wait for the device before they look."""
        if not self._checks["copied_at_return"] and self._device.type != "cpu":
            torch.cuda.synchronize(self._device)
        target = self._inputs[into].value if into else memory.byte_view(memory.map_shared(fds[0], nbytes))
        storages = [storage for call in calls for storage in self._outputs[call].storages]
        for offset, storage in zip(offsets, storages, strict=True):
            size = storage.nbytes()
            source = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (size,), (1,))
            target[offset : offset + size].copy_(source)
        if into:
            torch.cuda.synchronize(self._device)  # queue order does not reach another process
        if self._checks["poisoned_memory"]:
            self._poison()
        return "taken", {}

    def _poison(self) -> None:
        """Fill the output that was taken with NaN: who returns it once more without writing it returns NaN."""
        lent = {tensor.untyped_storage().data_ptr() for inputs in self._inputs.values() for tensor in tensors(inputs.value)}
        for tensor in tensors(self._returned):
            if tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in lent:
                with contextlib.suppress(RuntimeError), torch.inference_mode():  # a dtype or a view that cannot be filled
                    codec.DETACH(tensor).fill_(float("nan"))
        self._returned = None

    def _profile(self, fds: list[int], inputs: str, calls: int) -> Answer:
        data, kernel = self._inputs[inputs].value, self._module.custom_kernel
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler says on stderr that it starts
        with torch.profiler.profile() as profiler:
            for _ in range(calls):
                kernel(data)
            if self._device.type != "cpu":
                torch.cuda.synchronize(self._device)
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder, "trace.json")
            profiler.export_chrome_trace(str(trace))
            with os.fdopen(os.dup(fds[0]), "wb") as file:
                file.write(trace.read_bytes())
        return "profiled", {"rows": [_profile_row(event, calls) for event in profiler.key_averages()]}


def _shape(output: Encoded) -> dict[str, Any]:
    """An output without its bytes."""
    return {"tree": output.tree, "storages": [[storage.nbytes(), str(storage.device)] for storage in output.storages]}


def _touched(value: Any) -> Any:
    """A tensor of a subclass made plain by its own code."""
    return value.contiguous().as_subclass(torch.Tensor) if isinstance(value, torch.Tensor) else value


def _profile_row(event: Any, calls: int) -> dict[str, Any]:
    # A host operator repeats the device time of the kernels that it launched; those have rows of their own.
    device_us = event.self_device_time_total if str(event.device_type) != "DeviceType.CPU" else 0
    return {
        "name": event.key[:200],
        "count": event.count,
        "device_ns": round(device_us * 1e3 / calls),
        "host_ns": round(event.self_cpu_time_total * 1e3 / calls),
    }


def _import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickles of the submission look it up
    spec.loader.exec_module(module)
    return module


def failure(error: BaseException) -> Answer:
    """The `failed` answer for an exception that left the submission."""
    message = f"the submission called sys.exit({error})" if isinstance(error, SystemExit) else str(error)
    if len(message) > 2 * MAX_TEXT:  # a compiler's output: what failed stands first, why stands last
        message = f"{message[:MAX_TEXT]}\n...\n{message[-MAX_TEXT:]}"
    return _failed(_category(error), message, type(error).__name__, _own_frames(error))


def _failed(category: str, message: str, kind: str = "", frames: Sequence[list[Any]] = ()) -> Answer:
    return "failed", {"category": category, "type": kind, "message": message, "frames": list(frames)}


def _category(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, blocker.NotHeld):
        return "tampered"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text or "out of memory" in text:
        return "oom"
    if isinstance(error, getattr(torch, "AcceleratorError", ())) or "CUDA error" in text or "HIP error" in text:
        return "device"
    return "raised"


def _own_frames(error: BaseException) -> list[list[Any]]:
    """The traceback's lines that lie in this folder: the author's own, not torch's and not the harness's."""
    folder = os.getcwd() + os.sep
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folder)]
    found = [[Path(frame.filename).name, frame.lineno, frame.name, (frame.line or "")[:200]] for frame in frames]
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(folder):
        line = linecache.getline(str(error.filename), error.lineno or 0).strip()
        found.append([Path(str(error.filename)).name, error.lineno, "", line[:200]])
    return found[-MAX_FRAMES:]


def serve(channel: Channel) -> None:
    """Answer requests until the referee hangs up."""
    worker = Worker(channel)
    channel.send("ready", {})
    while True:
        try:
            frame = channel.receive(max_fds=250)
        except ChannelClosed:
            return
        try:
            kind, fields = worker.answer(frame)
        except BaseException as error:  # whatever a submission raises is an answer, SystemExit too
            kind, fields = failure(error)
        for fd in frame.fds:
            os.close(fd)
        _reply(channel, kind, fields)


def _reply(channel: Channel, kind: str, fields: dict[str, Any]) -> None:
    try:
        channel.send(kind, fields)
    except (BadFrame, ValueError) as error:  # an output of too many parts, or an integer too long to print
        channel.send(*_failed("bad_output", f"custom_kernel's output cannot be described: {error}"))


def serve_on(fd: int) -> None:
    """Serve on a socket that was inherited; called by harness.jail."""
    os.set_inheritable(fd, False)
    serve(Channel(socket.socket(fileno=fd)))
