"""People, submissions and evaluations for the leaderboard's tests: the short way to a store that holds something."""

from dataclasses import dataclass, field
from pathlib import Path

import httpx

from harness.result import Device, Result
from leaderboard import jobs, submissions
from leaderboard.accounts import Identity, make_token, make_user
from leaderboard.boards import find_board
from leaderboard.settings import Settings
from leaderboard.stages import Stage, stages
from leaderboard.store.database import Store
from leaderboard.store.models import Job, Submission
from scripts.stub_evaluation import DEVICE, stub_result

DOUBLING = Path(__file__).parents[1] / "harness" / "doubling"
NO_TLS = httpx.create_ssl_context(verify=False)  # made once: loading certificates for each client takes longer than its calls
CODE = "def custom_kernel(data):\n    return data[0] * 2\n"


def person(store: Store, name: str, role: str = "user") -> Identity:
    """Somebody."""
    with store.writing() as session:
        return Identity(make_user(session, name).id, name, role)


def token_of(store: Store, name: str, role: str = "user") -> str:
    """A new token of somebody."""
    with store.writing() as session:
        return make_token(session, name, role)


def runner(store: Store, name: str = "runner", gpu: str = "CPU", device: Device = DEVICE) -> int:
    """A registered runner's number."""
    with store.writing() as session:
        return jobs.register(session, name, gpu, device, {"cpu": "stub"}, make_user(session, "lab").id).id


def submit(
    store: Store,
    user: Identity,
    mode: str = "leaderboard",
    code: str = CODE,
    gpu: str = "CPU",
    settings: Settings | None = None,
) -> int:
    """A submission's number."""
    with store.writing() as session:
        board = find_board(session, "doubling")
        assert board is not None
        offer = submissions.Offer(gpu, mode, "submission.py", code.encode())
        return submissions.accept(session, user, board, offer, settings or Settings()).id


@dataclass
class Claimed:
    """A job that a runner holds."""

    job_id: int
    hold: jobs.Hold
    submission_id: int
    mode: str
    code: str


def claim(store: Store, runner_id: int, lease_s: float = 60.0) -> Claimed | None:
    """The next job, or None."""
    with store.writing() as session:
        runner = jobs.find_runner(session, runner_id, make_user(session, "lab").id)
        job = jobs.claim(session, runner, lease_s)
        if job is None:
            return None
        kept = job.submission
        assert job.lease is not None
        return Claimed(job.id, jobs.Hold(job.lease, runner.user_id), kept.id, kept.mode, kept.code.content.decode())


def report(store: Store, held: Claimed, stage: Stage, result: Result) -> None:
    """What one stage found."""
    with store.writing() as session:
        jobs.add_run(session, held.job_id, held.hold, stage.secret, result)


def finish(store: Store, held: Claimed, outcome: str = "done", error: str = "") -> str:
    """The final status."""
    with store.writing() as session:
        return jobs.finish(session, held.job_id, held.hold, outcome, error)


def evaluate(store: Store, held: Claimed, score_ns: float = 1000.0, fails: Stage | None = None) -> str:
    """Report every stage of a job, up to the one that fails; the final status."""
    for stage in stages(held.mode):
        report(store, held, stage, stub_result(held.code, stage.mode, stage != fails, score_ns + 7 * stage.secret))
        if stage == fails:
            break
    return finish(store, held)


def ranked(store: Store, user: Identity, score_ns: float, code: str | None = None) -> int:
    """A submission of that score which has passed."""
    number = submit(store, user, code=code or f"{CODE}# {score_ns}\n")
    held = claim(store, runner(store))
    assert held is not None
    assert held.submission_id == number
    assert evaluate(store, held, score_ns) == "succeeded"
    return number


def job_of(store: Store, number: int) -> Job:
    """A submission's job, detached."""
    with store.reading() as session:
        job = session.get_one(Submission, number).job
        session.expunge_all()
        return job


@dataclass
class LiveSite:
    """A server in this process, on a real socket."""

    store: Store
    url: str
    settings: Settings
    clients: list[httpx.Client] = field(default_factory=list)

    def client(self, name: str = "", role: str = "user") -> httpx.Client:
        """Somebody's client; nobody's without a name."""
        headers = {}
        if name:
            token = token_of(self.store, name, role)
            headers = {"X-Popcorn-Cli-Id": token} if role == "user" else {"Authorization": f"Bearer {token}"}
        self.clients.append(httpx.Client(base_url=self.url, headers=headers, timeout=60, verify=NO_TLS))
        return self.clients[-1]

    def upload(self, client: httpx.Client, mode: str = "leaderboard", code: str = CODE) -> httpx.Response:
        """A submission over the wire."""
        return client.post(f"/submission/doubling/CPU/{mode}", files={"file": ("submission.py", code.encode())})
