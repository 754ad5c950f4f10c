"""A store of made-up submissions, to look at the leaderboard's pages without a competition: everything in it is invented.

python -m scripts.leaderboard_demo FILE.sqlite     then: python -m leaderboard serve --database sqlite:///FILE.sqlite

The shape of the samples is that of a committed Result; every time in it is scaled. Device, boards and users are called demo.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy.orm import Session

from harness.history import case_columns, run_columns
from harness.result import CaseResult, Device, Official, Result, Score, Status, Strict, read_result, score_of
from leaderboard.accounts import Identity, make_token
from leaderboard.boards import BoardPlan, put_board, read_plans
from leaderboard.jobs import Hold, add_run, claim, finish, heartbeat, register
from leaderboard.settings import Settings
from leaderboard.store.columns import utc_now
from leaderboard.store.database import Store
from leaderboard.store.models import Case, Job, Leaderboard, Run, Runner, Submission, SubmissionRun
from leaderboard.store.models import User as UserRow
from leaderboard.submissions import Offer, accept, mark_hacked

ROOT = Path(__file__).parent.parent
SHAPE = ROOT / "docs" / "results" / "h200-robust-benchmark.json"
TOKEN = "demo-token-of-ada-0001"  # of the author whose page the pictures show
GPU, OTHER_GPU = "DEMO", "DEMO-2"
BOARD, CLOSED_BOARD, EMPTY_BOARD = "demo-mixed-mla", "demo-last-month", "demo-nobody-yet"
LEASE_S = 3600.0
HIP = '\nHIP = r"""\n#include <hip/hip_runtime.h>\n__global__ void scale(float* x, float by) { x[threadIdx.x] *= by; }\n"""\n'


@dataclass(frozen=True)
class Story:
    """One submission: how many days ago, by whom, how slow against the shape's own times, how it ended."""

    days_ago: float
    user: str
    factor: float
    ending: str = "passes"  # passes, wrong, secret fails, times out, hacked


STORIES = (
    Story(19.4, "demo-ada", 6.1), Story(18.2, "demo-grace", 5.2), Story(17.7, "demo-linus", 7.4, "wrong"),
    Story(17.1, "demo-linus", 4.6), Story(15.9, "demo-ada", 4.9), Story(14.6, "demo-barbara", 3.3),
    Story(13.8, "demo-grace", 3.9), Story(12.2, "demo-ada", 2.71), Story(11.5, "demo-edsger", 3.05),
    Story(9.9, "demo-linus", 2.9, "secret fails"), Story(9.1, "demo-grace", 2.2), Story(7.7, "demo-barbara", 2.35),
    Story(6.4, "demo-mallory", 0.4, "hacked"), Story(5.6, "demo-ada", 1.72), Story(4.8, "demo-edsger", 1.94),
    Story(4.1, "demo-grace", 1.58), Story(2.9, "demo-alan", 1.581), Story(2.2, "demo-linus", 1.9, "times out"),
    Story(1.3, "demo-ada", 1.31),
)  # fmt: skip


def fill(store: Store) -> None:
    """Boards, users, runners, finished submissions, some that run and wait. `TOKEN` signs demo-ada in."""
    with store.writing() as session:
        make_token(session, "demo-ada", token=TOKEN)
        make_token(session, "demo-admin", "admin", token="demo-token-of-the-admin")
        board = _boards(session)
        runner = add_runner(session, "demo-node-1", GPU)
        for story in STORIES:
            _tell(session, board, runner, story)
        _closed(session)
        _queue(session, board, runner)
        _recorded(session)


def code_of(story: Story) -> str:
    """A file to look at and to compare."""
    splits = max(1, round(40 / story.factor))
    return (
        f"#!POPCORN leaderboard {BOARD}\n#!POPCORN gpu {GPU}\n# Made up for a demonstration.\nimport torch\n\n"
        f"NUM_KV_SPLITS = {splits}  # tuned by hand\n\n\n"
        "def custom_kernel(data):\n    q, kv, qo_indptr, kv_indptr, config = data\n"
        "    scores = torch.einsum('bhd,btd->bht', q.float(), kv.float()) * config['sm_scale']\n"
        "    return (scores.softmax(-1) @ kv[..., :512].float()).to(torch.bfloat16)\n"
    ) + (HIP if story.factor < 2 else "")  # fmt: skip


def result_of(story: Story, mode: str, submission: Submission, seed: int) -> Result:
    """The shape's Result with every time scaled, and some of it wrong where the story says so."""
    shape = read_result(SHAPE)
    noise = random.Random(f"{story.user} {story.days_ago} {mode} {seed}")
    cases = tuple(_scaled(case, story.factor * (1 + 0.02 * (noise.random() - 0.5)), mode) for case in shape.cases)
    if story.ending == "wrong" or (story.ending == "secret fails" and seed):
        cases = (*cases[:-1], _wrong(cases[-1]))
    file = replace(shape.submission, name=submission.file_name, sha256=submission.code_sha256, size_bytes=len(code_of(story)))
    score = score_of(cases, "geom", "median") if mode != "test" else Score("geom", "median")
    device = Device(f"demo device of {submission.gpu}", "cpu", "demo", memory_bytes=150 << 30, peaks=shape.device.peaks)
    return replace(
        shape, problem=BOARD, mode=mode, cases=cases, score=score, submission=file, device=device, warnings=(),
        command=("eval.py",), started_at=utc_now().isoformat(timespec="seconds"),
    )  # fmt: skip


def _boards(session: Session) -> Leaderboard:
    """One that is open, one whose deadline has passed, one without submissions."""
    (plan,) = read_plans(ROOT / "configs")
    task = replace(
        plan.task, gpus=(GPU, OTHER_GPU), description="Made-up data for a demonstration: MLA decode over a mixed KV cache."
    )
    soon, past = utc_now() + timedelta(days=12, hours=5), utc_now() - timedelta(days=3)
    board = put_board(session, BoardPlan(BOARD, plan.problem, task, soon), "demo")
    closed = replace(task, description="Made-up data: a leaderboard whose deadline has passed.", gpus=(GPU,))
    put_board(session, BoardPlan(CLOSED_BOARD, plan.problem, closed, past), "demo")
    empty = replace(task, description="Made-up data: a leaderboard without submissions.", gpus=())
    put_board(session, BoardPlan(EMPTY_BOARD, plan.problem, empty), "demo")
    return board


def add_runner(session: Session, name: str, gpu: str) -> Runner:
    """A runner with an owner of its own."""
    make_token(session, f"{name}-owner", "runner", token=f"demo-token-of-{name}")
    owner = session.query(UserRow).filter_by(name=f"{name}-owner").one()
    device = Device(f"demo device of {gpu}", "cpu", "demo", memory_bytes=150 << 30)
    return register(session, name, gpu, device, {"gpu": gpu}, owner.id)


def _submit(
    session: Session, board: Leaderboard, story: Story, mode: str = "leaderboard", at: datetime | None = None
) -> Submission:
    user = session.query(UserRow).filter_by(name=story.user).one_or_none()
    if user is None:
        make_token(session, story.user, token=f"demo-token-of-{story.user}")
        user = session.query(UserRow).filter_by(name=story.user).one()
    offer = Offer(board.task["gpus"][0], mode, "submission.py", code_of(story).encode())
    submission = accept(session, Identity(user.id, user.name, "user"), board, offer, Settings())
    submission.submitted_at = submission.job.created_at = at or utc_now() - timedelta(days=story.days_ago)
    session.flush()
    return submission


def _tell(session: Session, board: Leaderboard, runner: Runner, story: Story) -> None:
    submission = _submit(session, board, story)
    job = claim(session, runner, LEASE_S)
    assert job is not None
    assert job.submission_id == submission.id
    at, seconds = submission.submitted_at, 40 + 9 * story.factor
    outcome = _run(session, job, story)
    finish(session, job.id, _hold(job), outcome, "the ranked run took longer than 180 s" if outcome == "timed_out" else "")
    start, length = at + timedelta(seconds=7), timedelta(seconds=seconds)
    job.started_at, job.ended_at = start, start + length
    runs = session.query(SubmissionRun).filter_by(submission_id=submission.id).order_by(SubmissionRun.run_id).all()
    for index, link in enumerate(runs):
        began = start + length * index / len(runs)
        link.run.started_at, link.ended_at = began.isoformat(), began + length / len(runs)
    if story.ending == "hacked":
        admin = session.query(UserRow).filter_by(name="demo-admin").one()
        mark_hacked(session, submission.id, "it keeps the outputs of earlier calls", Identity(admin.id, admin.name, "admin"))


def _run(session: Session, job: Job, story: Story) -> str:
    """Report the stages as a runner would, up to the first that fails."""
    for secret in (False, True):
        for mode in ("test", "benchmark", "leaderboard"):
            if story.ending == "times out" and mode == "leaderboard":
                return "timed_out"
            result = result_of(story, mode, job.submission, int(secret))
            add_run(session, job.id, _hold(job), secret, result)
            if not result.ok:
                return "failed"
    return "done"


def _hold(job: Job) -> Hold:
    """What the runner shows that has claimed the job."""
    assert job.lease is not None
    assert job.runner is not None
    return Hold(job.lease, job.runner.user_id)


def _queue(session: Session, board: Leaderboard, runner: Runner) -> None:
    """One that runs, three that wait, a second runner without work."""
    now = utc_now()
    running = _submit(session, board, Story(0, "demo-grace", 1.4), at=now - timedelta(seconds=75))
    job = claim(session, runner, LEASE_S)
    assert job is not None
    assert job.submission_id == running.id
    progress = {"mode": "benchmark", "secret": False, "case": 4, "cases": 8, "phase": "sampling", "passed": 3}
    heartbeat(session, job.id, _hold(job), LEASE_S, progress)
    job.started_at = now - timedelta(seconds=48)
    for index, user in enumerate(("demo-ada", "demo-barbara", "demo-ada")):
        _submit(
            session,
            board,
            Story(0, user, 1.2 + index / 10),
            "benchmark" if index else "leaderboard",
            now - timedelta(seconds=40 - 9 * index),
        )
    add_runner(session, "demo-node-2", OTHER_GPU)


def _closed(session: Session) -> None:
    """A ranked score on the leaderboard that is closed, handed in before its end."""
    board = session.query(Leaderboard).filter_by(name=CLOSED_BOARD).one()
    until, board.deadline = board.deadline, None
    runner = session.query(Runner).first()
    assert runner is not None
    _tell(session, board, runner, Story(20, "demo-barbara", 2.0))
    board.deadline = until


def _recorded(session: Session) -> None:
    """Two runs as `eval.py --record` keeps them."""
    for factor in (2.0, 1.5):
        shape = read_result(SHAPE)
        cases = tuple(_scaled(case, factor, "benchmark") for case in shape.cases)
        device = Device("demo device", "cpu", "demo", peaks=shape.device.peaks)
        result = replace(shape, problem=BOARD, cases=cases, score=score_of(cases, "geom", "median"), device=device)
        run = Run(**run_columns(result))
        session.add(run)
        session.flush()
        session.add_all(Case(run_id=run.id, position=index, **case_columns(case)) for index, case in enumerate(result.cases))


def _scaled(case: CaseResult, factor: float, mode: str) -> CaseResult:
    """The case with every time multiplied; in test mode without times."""
    if mode == "test" or case.timing is None:
        return replace(case, timing=None, floor=None, comparison=None, conditions=None)
    timing = case.timing
    names = ("median_ns", "mean_ns", "err_ns", "std_ns", "best_ns", "worst_ns")
    scaled = {name: getattr(timing, name) * factor for name in names}
    ci95_ns = (timing.ci95_ns[0] * factor, timing.ci95_ns[1] * factor)
    samples = tuple(round(sample * factor) for sample in timing.samples_ns)
    return replace(case, timing=replace(timing, **scaled, ci95_ns=ci95_ns, samples_ns=samples), conditions=None)


def _wrong(case: CaseResult) -> CaseResult:
    message = "mismatch at (3, 0, 17): 0.118 instead of 0.131"
    official, strict = Official(False, message), Strict(False, "1 of 256 rows is off", format="fp8", rel_l2_worst=0.11)
    return replace(case, status=Status.WRONG, official=official, strict=strict, timing=None, floor=None, comparison=None)


def main(arguments: Sequence[str]) -> int:
    """Fill a new store; 2 for a file that exists."""
    if len(arguments) != 1 or Path(arguments[0]).exists():
        print("usage: python -m scripts.leaderboard_demo NEW_FILE.sqlite", file=sys.stderr)
        return 2
    store = Store(f"sqlite:///{arguments[0]}")
    store.migrate()
    fill(store)
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
