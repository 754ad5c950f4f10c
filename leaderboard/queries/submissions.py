"""Submissions: lists, and one with its runs. What somebody else may not know is left out here, for every caller alike."""

import functools
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, func, select
from sqlalchemy.orm import Session, aliased, joinedload, undefer

from harness.result import Result
from leaderboard.accounts import Identity
from leaderboard.queries.live import job_view
from leaderboard.queries.views import CaseView, RunView, SubmissionDetail, SubmissionRow
from leaderboard.reports import run_report, secret_report
from leaderboard.store.evaluations import read_result
from leaderboard.store.models import FINAL, Case, Code, Job, Leaderboard, Run, Submission, SubmissionRun, User

SCORED_MODES = ("leaderboard", "benchmark")
Public, Secret = aliased(SubmissionRun), aliased(SubmissionRun)
PublicRun, SecretRun = aliased(Run), aliased(Run)


def submissions(
    session: Session,
    *,
    leaderboard: str | None = None,
    user: str | None = None,
    gpu: str | None = None,
    status: str | None = None,
    mode: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before_id: int | None = None,
    limit: int = 50,
) -> list[SubmissionRow]:
    """The latest submissions that fit, newest first: from `since` on, before `until`, before the number `before_id`."""
    wanted = [
        (Leaderboard.name, leaderboard),
        (User.name, user),
        (Submission.gpu, gpu),
        (Job.status, status),
        (Submission.mode, mode),
    ]
    query = _rows().where(*(column == value for column, value in wanted if value is not None))
    if since is not None:
        query = query.where(Submission.submitted_at >= since)
    if until is not None:
        query = query.where(Submission.submitted_at < until)
    if before_id is not None:
        query = query.where(Submission.id < before_id)
    return [_row(found) for found in session.execute(query.order_by(Submission.id.desc()).limit(limit))]


def submission(session: Session, number: int, viewer: Identity | None, with_runs: bool = True) -> SubmissionDetail | None:
    """A submission as `viewer` may see it; None if there is none. Its runs are most of the work: not every page shows them."""
    found = session.execute(_rows().where(Submission.id == number)).first()
    if found is None:
        return None
    kept, full = found.Submission, may_see_code(session, number, viewer)
    job = job_view(session, found.Job)
    size = select(func.length(Code.content)).where(Code.sha256 == kept.code_sha256)
    return SubmissionDetail(
        row=_row(found),
        job=job if full else replace(job, error=headline_of(job.error)),
        runs=_runs(session, kept, viewer) if with_runs else (),
        code=code(session, number, viewer),
        size_bytes=session.scalar(size) or 0,
        leaderboard_id=kept.leaderboard_id,
        user_id=kept.user_id,
    )


def may_see_code(session: Session, number: int, viewer: Identity | None) -> bool:
    """Whether the viewer is the author or an administrator."""
    owner = session.scalar(select(Submission.user_id).where(Submission.id == number))
    return viewer is not None and owner is not None and (viewer.is_admin or viewer.user_id == owner)


def code(session: Session, number: int, viewer: Identity | None) -> str | None:
    """The file of a submission; None if the viewer may not see it."""
    if not may_see_code(session, number, viewer):
        return None
    query = select(Code.content).join(Submission, Submission.code_sha256 == Code.sha256)
    content = session.scalar(query.where(Submission.id == number))
    return content.decode() if content is not None else None


def headline_of(error: str) -> str:
    """The first line of a job's error, which anybody may read; the rest quotes the submission."""
    return error.partition("\n")[0]


@functools.cache  # putting the statement together costs more than the database takes to answer it
def _rows() -> Select:
    """Submissions with their board, author and job, and the two runs that scores are taken from."""
    return (
        select(
            Submission, Job, Leaderboard.name.label("board"), User.name.label("user"), PublicRun.score_ns.label("score_ns"),
            SecretRun.score_ns.label("secret_score_ns"), Secret.passed.label("secret_passed"), Public.passed.label("passed"),
        )
        .join(Submission.leaderboard)
        .join(Submission.user)
        .join(Submission.job)
        .outerjoin(Public, _scored(Public, secret=False))
        .outerjoin(PublicRun, PublicRun.id == Public.run_id)
        .outerjoin(Secret, _scored(Secret, secret=True))
        .outerjoin(SecretRun, SecretRun.id == Secret.run_id)
    )  # fmt: skip


def _scored(link: Any, secret: bool) -> Any:
    """The run of the last attempt in the submission's own mode: the one that its score is taken from."""
    same = and_(link.submission_id == Submission.id, link.attempt == Job.attempts, link.mode == Submission.mode)
    return and_(same, link.secret.is_(secret))


def _row(found: Any) -> SubmissionRow:
    kept, job = found.Submission, found.Job
    return SubmissionRow(
        id=kept.id,
        leaderboard=found.board,
        user=found.user,
        file_name=kept.file_name,
        gpu=kept.gpu,
        mode=kept.mode,
        submitted_at=kept.submitted_at,
        status=job.status,
        error=headline_of(job.error),
        done=job.status in FINAL,
        score_ns=found.score_ns,
        secret_score_ns=found.secret_score_ns,
        secret_passed=found.secret_passed,
        sha256=kept.code_sha256,
        hacked_reason=kept.hacked_reason,
        passed=found.passed,
    )


def _runs(session: Session, kept: Submission, viewer: Identity | None) -> tuple[RunView, ...]:
    """Every attempt's runs, in the order in which they ended."""
    query = (
        select(SubmissionRun)
        .where(SubmissionRun.submission_id == kept.id)
        .options(joinedload(SubmissionRun.run).options(undefer(Run.result)))
        .options(joinedload(SubmissionRun.runner), joinedload(SubmissionRun.device))
        .order_by(SubmissionRun.run_id)
    )
    links = session.scalars(query).all()
    cases = _cases(session, [link.run_id for link in links])
    return tuple(_run_view(link, cases[link.run_id], kept.user_id, viewer) for link in links)


def _run_view(link: SubmissionRun, cases: list[CaseView], owner: int, viewer: Identity | None) -> RunView:
    is_admin = viewer is not None and viewer.is_admin
    is_owner = viewer is not None and viewer.user_id == owner
    result = read_result(link.run.result)
    shown = is_admin or (is_owner and not link.secret)
    return RunView(
        run_id=link.run_id,
        mode=link.mode,
        secret=link.secret,
        attempt=link.attempt,
        passed=link.passed,
        score_ns=link.run.score_ns,
        device=link.device.name,
        runner=link.runner.name if link.runner else None,
        started_at=datetime.fromisoformat(link.run.started_at),
        ended_at=link.ended_at,
        report=_report(result, link, shown),
        result=result if shown else None,
        cases=tuple(cases),
    )


def _report(result: Result, link: SubmissionRun, shown: bool) -> str:
    """Messages quote what a submission says, and in a secret run that may be the secret: only counts are told."""
    return run_report(result, link.mode) if shown else secret_report(result, link.mode)


def _cases(session: Session, run_ids: list[int]) -> dict[int, list[CaseView]]:
    """The cases of each run, in their order."""
    found: dict[int, list[CaseView]] = {run_id: [] for run_id in run_ids}
    columns = (
        Case.run_id, Case.spec, Case.status, Case.median_ns, Case.ci_low_ns, Case.ci_high_ns, Case.mean_ns, Case.err_ns,
        Case.kv_format, Case.backend,
    )  # fmt: skip
    for row in session.execute(select(*columns).where(Case.run_id.in_(run_ids)).order_by(Case.position)):
        figures = (row.median_ns, row.ci_low_ns, row.ci_high_ns, row.mean_ns, row.err_ns)
        found[row.run_id].append(CaseView(json.loads(row.spec), row.status, *figures, row.kv_format, row.backend))
    return found
