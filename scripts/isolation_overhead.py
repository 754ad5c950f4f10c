"""What isolation costs: one submission behind all layers and in this process, sample by sample in turn, on every case.

python scripts/isolation_overhead.py                              the official cases on the GPU (smoke cases on a CPU)
python scripts/isolation_overhead.py --json docs/results/isolation-h200.json

Both sides run the same worker code, by the same timer, on the same contents; only one has a process, layers and lent
memory between itself and the referee. Outputs are judged at the ends alone, by the official rule: judging takes longer
than calling. Exit 1 if the medians differ by more than 3 % and 1 us on a case.

Meant for a GPU, where the device keeps the time. On a CPU two processes differ by more than their layers, in either
direction and by tens of percent: what their allocators have learned to keep, whose cores' caches the referee empties, and
whose threads are awake because the referee has just used them.
"""

import argparse
import contextlib
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.process import THREADS_REST  # noqa: E402

os.environ |= THREADS_REST  # as a worker has it; libgomp reads it when torch is imported

import torch  # noqa: E402

from harness.case_run import CaseRun  # noqa: E402
from harness.cli import choose_cases  # noqa: E402
from harness.clock import WallClock  # noqa: E402
from harness.codec import decode  # noqa: E402
from harness.defences import Defences  # noqa: E402
from harness.devices import describe_device, select_device  # noqa: E402
from harness.files import replace_file  # noqa: E402
from harness.inputs import InputBuffers  # noqa: E402
from harness.policies import Policy, robust  # noqa: E402
from harness.problem import load_problem  # noqa: E402
from harness.protocol import Frame  # noqa: E402
from harness.referee import Request, Workers, harness_version  # noqa: E402
from harness.session import Session  # noqa: E402
from harness.stats import summarize  # noqa: E402
from harness.timing import nothing  # noqa: E402
from harness.worker import Worker, failure  # noqa: E402
from popcorn.cases import Case  # noqa: E402

SCHEMA_VERSION = 1
MAX_SHARE, MAX_NS = 0.03, 1000.0
LINE = "{:<58} {:>12} {:>12} {:>8} {:>9}  {}"
# The referee's accounts of a process: here they would count the referee's own work, which is done in this process too.
ACCOUNTS = ("quiet_worker", "referee_clock")


class WorkersEnd:
    """The channel as the worker in this process sees it: when it says that the device is held, the inputs are completed."""

    def __init__(self) -> None:
        self.complete: Callable[[], None] = nothing

    def send(self, kind: str, fields: dict[str, Any]) -> None:
        """The device is held."""
        self.complete()

    def receive(self) -> None:
        """They are complete."""


class InProcess:
    """Stands where a WorkerProcess and its channel stand: the worker's own code, called in this process."""

    pid = root_pid = os.getpid()
    alive = True

    def __init__(self) -> None:
        self.there = WorkersEnd()
        self.worker, self.channel = Worker(self.there), self  # type: ignore[arg-type]
        self._answer: tuple[str, dict[str, Any]] = ("ready", {})

    def send(self, kind: str, fields: dict[str, Any], fds: tuple[int, ...] = (), timeout_s: float | None = None) -> None:
        """Ask, and have the answer at once."""
        try:
            self._answer = self.worker.answer(Frame(kind, fields, list(fds)))
        except Exception as error:
            self._answer = failure(error)

    def receive(self, timeout_s: float | None = None) -> Frame:
        """The answer."""
        return Frame(*self._answer)

    def take_printed(self) -> str:
        """What is printed here is seen here."""
        return ""

    def close(self) -> None:
        """Nothing is to be ended."""

    kill = close


class Lent:
    """A referee's buffers as its own process sees them."""

    def __init__(self, inputs: InputBuffers):
        self.value = decode(inputs.tree, inputs.storages)

    def refresh(self) -> None:
        """They are the same memory."""

    def changed(self) -> list[int]:
        """Nothing that the referee would not see itself."""
        return []


class UnisolatedSession(Session):
    """A session with a worker in this process."""

    def __init__(self, submission: Path, device: torch.device):
        self._here = InProcess()
        super().__init__(self._here, submission, device, 300.0, Defences().without(*ACCOUNTS))  # type: ignore[arg-type]

    def _ask(self, *request: Any, held: Callable[[], None] | None = None) -> dict[str, Any]:
        self._here.there.complete = held or nothing
        return super()._ask(*request)

    def map(self, name: str, inputs: InputBuffers) -> None:
        """Show the worker the buffers themselves: a process cannot open its own device memory by handle."""
        self._here.worker._inputs[name] = Lent(inputs)  # type: ignore[assignment]


def options(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--submission", type=Path, default=ROOT / "submission.py")
    made.add_argument("--cases", help='official, smoke, a file, or "key: value; ..."')
    made.add_argument("--budget-s", type=float, default=2.0, help="wall time for the samples of a case, each side")
    made.add_argument("--device", help="cpu, cuda or cuda:N")
    made.add_argument("--json", type=Path, metavar="FILE", help="write what was measured here, again after every case")
    return made.parse_args(argv)


def measure(request: Request, case: Case, isolated: Session, unisolated: Session) -> dict[str, Any]:
    """Medians and intervals of both sides on one case. Raises CallFailed if the submission does."""
    started = time.monotonic()
    for session in (isolated, unisolated):
        session.grant_time()
    tell = lambda phase, **more: None  # noqa: E731
    with CaseRun(request.problem, case, request.policy, isolated, WallClock(), tell, unisolated) as run:
        run.run(timed=True)
    rival = run.rival
    assert run.sampling
    assert rival
    if rival.failure or not rival.contestant.sampling:
        sys.exit(f"{case.text}: in this process the submission {rival.failure}")
    there, here = (summarize(samples_ns) for samples_ns in (run.sampling.samples_ns, rival.contestant.sampling.samples_ns))
    difference_ns = abs(there.median_ns - here.median_ns)
    return {
        "spec": case.spec,
        "isolated": {"median_ns": there.median_ns, "ci95_ns": there.ci95_ns, "runs": there.runs},
        "unisolated": {"median_ns": here.median_ns, "ci95_ns": here.ci95_ns, "runs": here.runs},
        "agrees": difference_ns <= max(MAX_SHARE * here.median_ns, MAX_NS),
        "bound_ns": run.sampling.ledger.bound_ns,
        "seconds": time.monotonic() - started,
    }


def show(found: dict[str, Any]) -> None:
    """One line."""
    there, here = found["isolated"]["median_ns"], found["unisolated"]["median_ns"]
    spec = "; ".join(f"{key}: {value}" for key, value in found["spec"].items())
    says = "agrees" if found["agrees"] else "DIFFERS"
    figures = (f"{there / 1e3:.2f}", f"{here / 1e3:.2f}", f"{there / here:.3f}", f"{(there - here) / 1e3:+.2f}")
    print(LINE.format(spec, *figures, f"{says}, {found['seconds']:.0f} s"), flush=True)


def like_a_run(policy: Policy) -> Policy:
    """The rules of a run, less what takes time and does not change a sample."""
    return replace(policy, judged="ends", strict=False, bursts=False)


def run(wanted: argparse.Namespace, scratch: Path) -> int:
    """Measure every case; 1 if the sides disagree on one."""
    problem, device = load_problem(ROOT / "configs"), select_device(wanted.device)
    about = describe_device(device)
    cases_from, cases = choose_cases(wanted.cases, problem, "benchmark", about)
    policy = like_a_run(robust("benchmark", about, wanted.budget_s))
    request = Request(problem, wanted.submission.resolve(), "benchmark", cases, cases_from, policy, device)
    workers, folder = Workers(request, request.submission, scratch), scratch / "here"
    folder.mkdir()
    unisolated = UnisolatedSession(problem.stage(folder, request.submission), device)
    record: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    with contextlib.closing(workers), contextlib.chdir(folder):
        isolated = workers.session()
        record |= {"harness_version": harness_version(), "device": about.name, "submission": wanted.submission.name}
        record |= {"containment": workers.containment.layers, "lent_memory": workers.device_ipc, "cases": []}
        sys.path.insert(0, str(folder))
        unisolated.start(policy.cold)
        unisolated.load()
        print(LINE.format("case", "isolated us", "in process", "ratio", "us more", ""), flush=True)
        for case in cases:
            record["cases"].append(measure(request, case, isolated, unisolated))
            show(record["cases"][-1])
            if wanted.json:
                replace_file(wanted.json, json.dumps(record, indent=1) + "\n")
    sys.path.remove(str(folder))
    agree = sum(found["agrees"] for found in record["cases"])
    print(f"{agree} of {len(cases)} agree within {MAX_SHARE:.0%} or {MAX_NS / 1e3:g} us")
    return 0 if agree == len(cases) else 1


def main(argv: list[str]) -> int:
    """Run the command line; the exit code."""
    wanted = options(argv)
    wanted.json = wanted.json and wanted.json.resolve()
    with tempfile.TemporaryDirectory(prefix="isolation-") as scratch:
        return run(wanted, Path(scratch))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
