"""Frames survive any cutting of the byte stream; bytes that are no frame are named as such."""

import contextlib
import json
import os
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.protocol import MAX_FRAME_BYTES, BadFrame, Channel, ChannelClosed, ChannelTimedOut

json_objects = st.dictionaries(
    st.text(max_size=8), st.none() | st.integers() | st.text(max_size=20) | st.lists(st.booleans()), max_size=5
)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield Channel(ours), Channel(theirs)
    ours.close()
    theirs.close()


def feed(data: bytes) -> Channel:
    """A channel whose other end has sent `data` and gone."""
    ours, theirs = socket.socketpair()
    with theirs:
        threading.Thread(target=_send_all, args=(theirs.dup(), data), daemon=True).start()
    return Channel(ours)


def _send_all(end: socket.socket, data: bytes) -> None:
    with end, contextlib.suppress(OSError):  # the reader may refuse the frame and close
        end.sendall(data)


@settings(deadline=None)
@given(json_objects)
def test_frames_arrive_as_sent(fields):
    fields.pop("kind", None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours).send("CALL", fields)
        frame = Channel(theirs).receive(timeout_s=60)
    assert (frame.kind, frame.fields, frame.fds) == ("CALL", fields, [])


def test_large_frames_and_descriptors(pair, tmp_path):
    path = tmp_path / "file"
    path.write_text("content")
    fd = os.open(path, os.O_RDONLY)
    text = "x" * (MAX_FRAME_BYTES - 100)
    sender = threading.Thread(target=pair[0].send, args=("MAP", {"text": text}, (fd, fd)))
    sender.start()
    frame = pair[1].receive(timeout_s=60, max_fds=10)
    sender.join()
    assert frame.fields["text"] == text
    assert [os.read(received, 100) for received in frame.fds[:1]] == [b"content"]
    assert len(frame.fds) == 2
    for each in (fd, *frame.fds):
        os.close(each)


def open_ends(file: os.stat_result) -> int:
    """How many of this process's descriptors are of one file: other threads may open and close their own meanwhile."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.path.samestat(os.fstat(int(name)), file)
    return found


def test_descriptors_that_nobody_asked_for_are_closed(pair, tmp_path):
    with (tmp_path / "file").open("w") as file:
        pair[0].send("called", {}, (file.fileno(), file.fileno()))
        assert pair[1].receive(timeout_s=60).fds == []
        assert open_ends(os.fstat(file.fileno())) == 1


def test_too_large_to_send(pair):
    with pytest.raises(BadFrame, match="at most"):
        pair[0].send("MAP", {"text": "x" * MAX_FRAME_BYTES})


def test_silence_times_out(pair):
    with pytest.raises(ChannelTimedOut):
        pair[0].receive(timeout_s=0.05)


def test_a_reader_that_never_reads_times_out(pair):
    with pytest.raises(ChannelTimedOut):
        pair[0].send("MAP", {"text": "x" * 4_000_000}, timeout_s=0.1)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=64) | st.binary(max_size=32).map(lambda body: len(body).to_bytes(4, "big") + body))
def test_any_bytes_are_a_frame_or_a_named_error(data):
    channel = feed(data)
    try:
        frame = channel.receive(timeout_s=60)
        assert isinstance(frame.kind, str)
    except (BadFrame, ChannelClosed):
        pass
    finally:
        channel.close()


@pytest.mark.parametrize(
    "body",
    [
        "[]", "1", "null", "{}", '{"kind": 1}', '{"kind": "x", "value": NaN}', '{"kind": "x", "value": -Infinity}',
        "[" * 100_000, '{"kind": "x", "n": ' + "9" * 5000 + "}", "{", "",
    ],
)  # fmt: skip
def test_json_that_is_no_message(body):
    channel = feed(len(body).to_bytes(4, "big") + body.encode())
    with pytest.raises(BadFrame):
        channel.receive(timeout_s=60)
    channel.close()


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 0xFFFFFFFF])
def test_an_oversized_frame_is_refused_before_it_is_read(size):
    channel = feed(size.to_bytes(4, "big") + b"x" * 1000)
    with pytest.raises(BadFrame, match=str(size)):
        channel.receive(timeout_s=60)
    channel.close()


@pytest.mark.parametrize("cut", [0, 2, 4, 10])
def test_a_frame_cut_short_is_a_closed_channel(cut):
    body = json.dumps({"kind": "called"}).encode()
    channel = feed((len(body).to_bytes(4, "big") + body)[:cut])
    with pytest.raises(ChannelClosed):
        channel.receive(timeout_s=60)
    channel.close()
