"""The referee against a worker that answers anything: every answer is a value, or a CallFailed with a message."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import session as session_module
from harness.accounts import Used
from harness.errors import BadOutput, CallFailed, DeviceFault, OutOfMemory, ProtocolViolated, SubmissionRaised
from harness.inputs import InputBuffers
from harness.protocol import BadFrame, Channel, ChannelClosed
from harness.session import Session
from harness.timing import Sample

CALLED = {
    "elapsed_ns": 5, "host_ns": 4, "exposed": False, "description": None,
    "output": {
        "tree": ["tensor", {"storage": 0, "dtype": "int8", "shape": [3], "stride": [1], "offset": 0}], "storages": [[3, "cpu"]],
    },
}  # fmt: skip


class ScriptedProcess:
    """Stands where a WorkerProcess stands, and answers every request with the next of `answers`."""

    pid = root_pid = 1 << 27  # no process: the kernel keeps no accounts of it

    def __init__(self, answers: list[tuple[str, dict]]):
        ours, theirs = socket.socketpair()
        self.channel, self._theirs, self._answers = Channel(ours), Channel(theirs), answers
        self.killed = False
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        try:
            for kind, fields in self._answers:
                self._theirs.receive(max_fds=8)
                self._theirs.send(kind, fields)
            self._theirs.receive(max_fds=8)
        except (ChannelClosed, BadFrame, ValueError):
            pass
        self._theirs.close()

    def take_printed(self) -> str:
        return "printed"

    def obituary(self) -> str:
        return "vanished"

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        self.channel.close()


@pytest.fixture
def session_of(tmp_path):
    made = []

    def build(*answers: tuple[str, dict]) -> Session:
        submission = tmp_path / "submission.py"
        submission.write_text("# >>> kernels/a.py\nx = 1\n")
        made.append(Session(ScriptedProcess(list(answers)), Path(submission), torch.device("cpu"), timeout_s=60.0))
        return made[-1]

    yield build
    for session in made:
        session.close()


def test_an_honest_answer(session_of):
    session = session_of(("called", CALLED), ("taken", {}))
    called = session.call("case", timed=True)
    assert called.sample == Sample(5, 4, False)
    assert torch.equal(session.take(called), torch.zeros(3, dtype=torch.int8))


def test_an_output_that_is_taken_at_once(session_of):
    called = session_of(("called", CALLED), ("taken", {})).call("case", timed=True, take=True)
    assert called.taken
    assert torch.equal(called.output, torch.zeros(3, dtype=torch.int8))


def test_all_outputs_of_a_burst_are_taken_at_once(session_of):
    """Whoever knew which ones are judged would make no others."""
    session = session_of(("burst", {"outputs": [CALLED["output"]] * 3}), ("taken", {}))
    burst = session.burst(["a", "b", "a"])
    assert [called.index for called in burst.called] == [0, 1, 2]
    assert burst.wall_ns > 0
    assert all(called.taken and torch.equal(called.output, torch.zeros(3, dtype=torch.int8)) for called in burst.called)


@pytest.mark.parametrize(("others_ms", "waited_ms"), [(0, 70), (45, 25), (70, 0), (500, 0)])
def test_waiting_that_the_worker_may_have_caused_is_not_deducted(session_of, monkeypatch, others_ms, waited_ms):
    """Else whoever starts enough threads keeps the referee waiting, and is not charged for the time."""
    delays_ms = {"thread-self": iter([1000, 1050]), ScriptedProcess.pid: iter([300, 320])}
    used = iter([Used({1: (5000 * 10**6, 0)}), *[Used({1: ((5000 + others_ms) * 10**6, 0)})] * 2])
    monkeypatch.setattr(session_module, "run_delay_ns", lambda task: next(delays_ms[task]) * 10**6)
    monkeypatch.setattr(session_module.Used, "by", lambda pid, root: next(used))
    session = session_of(("burst", {"outputs": [CALLED["output"]] * 3}), ("taken", {}))
    session.rest()
    assert session.burst(["a", "b", "a"]).waited_ns == waited_ms * 10**6


@pytest.mark.parametrize("sizes", [[4], [3, 1], [1 << 28]])
def test_an_output_has_no_more_bytes_than_its_tensors(session_of, sizes):
    """Bytes of output are allowed time: who named more than there are would have as much as it likes."""
    output = {**CALLED["output"], "storages": [[size, "cpu"] for size in sizes]}
    with pytest.raises(ProtocolViolated, match="more bytes than its tensors have"):
        session_of(("called", {**CALLED, "output": output})).call("case", timed=True)
    with pytest.raises(ProtocolViolated, match="more bytes than its tensors have"):
        session_of(("burst", {"outputs": [CALLED["output"], output, CALLED["output"]]})).burst(["case"] * 3)


def test_outputs_of_a_burst_that_nobody_could_hold(session_of, monkeypatch):
    monkeypatch.setattr(session_module, "max_output_bytes", lambda: 7)
    session = session_of(("burst", {"outputs": [CALLED["output"]] * 3}))
    with pytest.raises(BadOutput, match="3 outputs"):
        session.burst(["a"] * 3)


@pytest.mark.parametrize("outputs", [None, [], [CALLED["output"]] * 2, [CALLED["output"], None, 3], "abc"])
def test_a_forged_burst_kills_the_worker(session_of, outputs):
    with pytest.raises(ProtocolViolated):
        session_of(("burst", {"outputs": outputs})).burst(["case"] * 3)


@pytest.mark.parametrize("changed", [None, {}, "0", [True], [0.5], [[0]]])
def test_a_forged_comparison_kills_the_worker(session_of, changed):
    with pytest.raises(ProtocolViolated, match="no list of numbers"):
        session_of(("compared", {"changed": changed})).changed_inputs("case", InputBuffers())


@pytest.mark.parametrize(
    "change",
    [
        {"elapsed_ns": -1}, {"elapsed_ns": 1.5}, {"elapsed_ns": True}, {"elapsed_ns": None}, {"elapsed_ns": 1 << 80},
        {"host_ns": "4"},
        {"output": None}, {"output": 7}, {"output": {}}, {"output": {"tree": [], "storages": 3}},
        {"output": {"tree": [], "storages": [[-1, "cpu"]]}},
        {"output": {"tree": [], "storages": [[4, "cuda:0"]]}}, {"output": {"tree": [], "storages": [[4]]}},
        {"output": {"tree": [], "storages": [[0, "cpu"]] * 20_000}},
    ],
)  # fmt: skip
def test_a_forged_answer_kills_the_worker(session_of, change):
    session = session_of(("called", CALLED | change))
    with pytest.raises(ProtocolViolated, match="only the harness's own worker may answer"):
        session.call("case")
    assert session._process.killed


def test_an_output_that_the_referee_cannot_hold(session_of):
    tensor = {"storage": 0, "dtype": "int8", "shape": [1 << 50], "stride": [1], "offset": 0}
    output = {"tree": ["tensor", tensor], "storages": [[1 << 50, "cpu"]]}
    with pytest.raises(BadOutput, match=r"1073741824 MiB; the referee can hold \d+ MiB"):
        session_of(("called", CALLED | {"output": output})).call("case")


@pytest.mark.parametrize("tree", [None, [], ["tensor", {}], ["tensor", {"storage": 1}], ["what", 1], ["list", [["int", "x"]]]])
def test_a_forged_tree_kills_the_worker(session_of, tree):
    for storages in ([[3, "cpu"]], []):
        session = session_of(("called", CALLED | {"output": {"tree": tree, "storages": storages}}), ("taken", {}))
        with pytest.raises(ProtocolViolated):
            session.take(session.call("case"))


@pytest.mark.parametrize("kind", ["loaded", "CALL", "", "x" * 1000])
def test_an_answer_to_another_question(session_of, kind):
    with pytest.raises(ProtocolViolated, match="'called' belongs"):
        session_of((kind, CALLED)).call("case")


@pytest.mark.parametrize(
    ("category", "error"),
    [("raised", SubmissionRaised), ("oom", OutOfMemory), ("device", DeviceFault), ("bad_output", BadOutput)],
)
def test_failures_by_category(session_of, category, error):
    frames = [["submission.py", 2, "f", "x = 1"]]
    answer = {"category": category, "type": "ValueError", "message": "no", "frames": frames}
    with pytest.raises(error, match=r"^ValueError: no$") as caught:
        session_of(("failed", answer)).call("case")
    assert caught.value.detail == "  kernels/a.py:1, in f\n    x = 1"


def test_a_worker_that_is_gone(session_of):
    session = session_of(("called", CALLED))
    session.call("case")
    with pytest.raises(CallFailed, match="the submission vanished"):
        session.call("case")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=10)
    | st.sampled_from(["cpu", "oom", "raised", "tensor"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(sorted({*CALLED, "tree", "storages", "type"})), inner)
    ),
    max_leaves=10,
)
fields_of_answers = st.dictionaries(st.sampled_from([*CALLED, "category", "type", "message", "frames"]), json_values)


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(["called", "failed", "taken"]), fields_of_answers.map(lambda fields: CALLED | fields) | fields_of_answers
)
def test_any_answer_is_a_value_or_a_named_failure(tmp_path_factory, kind, fields):
    submission = tmp_path_factory.getbasetemp() / "submission.py"
    submission.write_text("")
    session = Session(ScriptedProcess([(kind, fields), ("taken", {})]), submission, torch.device("cpu"), timeout_s=60.0)
    with session, contextlib.suppress(CallFailed):
        session.take(session.call("case"))
