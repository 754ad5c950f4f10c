"""What referee and worker say to each other: length-prefixed JSON frames over a socket pair, both processes import this.

A worker that has started says `ready {}`. Then come requests (referee to worker) and their answers; every answer may
instead be `failed`:

    START {device, cold, checks}            -> started {unheld}: the clock is built, the submission is not there yet;
                                               why other queues can run before it does, or nothing
    IDLE  {}                                -> idle {}: a call was timed in which nothing was called
    LOAD  {submission}                      -> loaded {load_ns}
    MAP   {name, tree, storages, private} + fds -> mapped {}
    REFRESH {name}                          -> mapped {}
    UNMAP {name}                            -> unmapped {}
    CALL  {inputs, timed, sleep_ns, describe, held} -> called {elapsed_ns, host_ns, exposed, output: {tree, storages},
                                               description}; with `held` first `held {}` once the device is, and the call
                                               after the referee's GO, when the inputs are complete
    BURST {inputs}                          -> burst {outputs: [{tree, storages}, ...]}: calls in a row, warm, one on each
                                               of the names in `inputs`
    TAKE  {calls, offsets, nbytes} + fd     -> taken {}; `calls` are indices in a burst; with `into`, the name of lent
                                               memory, instead of the descriptor
    COMPARE {name}                          -> compared {changed}: indices of the storages that the submission wrote
    PROFILE {inputs, calls} + fd            -> profiled {rows}
    failed {category, type, message, frames: [[file, line, function, text], ...]}

Bulk data travels beside the frames: descriptors of shared memory, or handles of device memory. The referee accepts
no descriptors and unpickles nothing.
"""

import contextlib
import json
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

MAX_FRAME_BYTES = 4 << 20
MAX_FDS = 253  # Linux's SCM_MAX_FD
_HEADER = struct.Struct(">I")


class ChannelClosed(Exception):
    """The other process is gone."""


class ChannelTimedOut(Exception):
    """No whole frame before the deadline."""


class BadFrame(Exception):
    """Bytes that are not a frame."""


@dataclass
class Frame:
    """One message; `kind` says which, `fields` is the rest of the JSON object."""

    kind: str
    fields: dict[str, Any]
    fds: list[int] = field(default_factory=list)


class Channel:
    """One end of the socket pair. `peer_pidfd`, if given, becomes readable when the other process has ended."""

    def __init__(self, sock: socket.socket, peer_pidfd: int | None = None):
        self._socket, self._peer = sock, peer_pidfd
        self._socket.setblocking(False)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def send(self, kind: str, fields: dict[str, Any], fds: tuple[int, ...] = (), timeout_s: float | None = None) -> None:
        """Send one frame, descriptors attached. Raises BadFrame if it is too large, ChannelClosed, ChannelTimedOut."""
        body = json.dumps({"kind": kind, **fields}, separators=(",", ":"), allow_nan=False).encode()
        if len(body) > MAX_FRAME_BYTES or len(fds) > MAX_FDS:
            raise BadFrame(f"a frame of {len(body)} bytes and {len(fds)} descriptors; at most {MAX_FRAME_BYTES} and {MAX_FDS}")
        view, deadline = memoryview(_HEADER.pack(len(body)) + body), _deadline(timeout_s)
        while view:
            self._wait(write=True, deadline=deadline)
            try:
                sent = socket.send_fds(self._socket, [view], list(fds)) if fds else self._socket.send(view)
            except BlockingIOError:
                continue
            except OSError:
                raise ChannelClosed from None
            view, fds = view[sent:], ()

    def receive(self, timeout_s: float | None = None, max_fds: int = 0) -> Frame:
        """The next frame. Raises ChannelClosed, ChannelTimedOut, BadFrame; descriptors beyond `max_fds` are closed."""
        deadline, fds = _deadline(timeout_s), []
        try:
            (size,) = _HEADER.unpack(self._read(_HEADER.size, deadline, max_fds, fds))
            if size > MAX_FRAME_BYTES:
                raise BadFrame(f"a frame of {size} bytes; at most {MAX_FRAME_BYTES}")
            return _parse(self._read(size, deadline, 0, fds), fds)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def _read(self, size: int, deadline: float | None, max_fds: int, fds: list[int]) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait(write=False, deadline=deadline)
            try:
                if max_fds:  # descriptors arrive with the first byte of a frame
                    part, received, _, _ = socket.recv_fds(self._socket, size - len(data), max_fds)
                    fds += received
                else:
                    part = self._socket.recv(size - len(data))
            except BlockingIOError:
                continue
            except OSError:
                raise ChannelClosed from None
            if not part:
                raise ChannelClosed
            data += part
        return bytes(data)

    def _wait(self, write: bool, deadline: float | None) -> None:
        """Return when the socket is ready; what a dead peer had already sent can still be read."""
        poller = select.poll()
        poller.register(self._socket, select.POLLOUT if write else select.POLLIN)
        if self._peer is not None:
            poller.register(self._peer, select.POLLIN)
        remaining_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1e3
        ready = dict(poller.poll(remaining_ms))
        if not ready:
            raise ChannelTimedOut
        if self._socket.fileno() not in ready:
            raise ChannelClosed


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _parse(body: bytes, fds: list[int]) -> Frame:
    def refuse(constant: str) -> None:
        raise BadFrame(f"{constant} in a frame")

    try:
        message = json.loads(body.decode(), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a frame that is not JSON ({error})") from None
    if not isinstance(message, dict) or not isinstance(kind := message.pop("kind", None), str):
        raise BadFrame("a frame without a kind")
    return Frame(kind, message, fds)


@contextlib.contextmanager
def closing_fds(fds: list[int]):
    """Close descriptors when the block ends."""
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)
