"""Submissions: accepted, cancelled, deleted, marked as hacked. All checks come before anything is kept."""

import hashlib
import re
from dataclasses import dataclass

from sqlalchemy import delete as delete_rows
from sqlalchemy import exists, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from leaderboard import audit
from leaderboard.accounts import Identity
from leaderboard.errors import BadRequest, Closed, Conflict, NotFound
from leaderboard.limits import check_limits, submit_target
from leaderboard.queries.boards import gpus_of, is_open
from leaderboard.settings import Settings
from leaderboard.store.columns import utc_now
from leaderboard.store.models import FINAL, Case, Code, Job, Leaderboard, Run, Setting, Submission, SubmissionRun, User
from popcorn.http_models import MODES
from popcorn.rules import check_submission

FILE_NAME = re.compile(r"[^/\\]+\.py")
LONGEST_NAME = 255  # bytes: of a file on the runner
STOPPED = "submissions stopped"


@dataclass(frozen=True)
class Offer:
    """What a client sends."""

    gpu: str
    mode: str
    file_name: str
    content: bytes


def accept(session: Session, user: Identity, board: Leaderboard, offer: Offer, settings: Settings) -> Submission:
    """Keep a submission and queue its job.

    Raises BadRequest (mode, GPU, file), Closed (deadline, stopped), LimitReached.
    """
    if session.get(Setting, STOPPED):
        raise Closed("the server takes no submissions now; an administrator has stopped it")
    if not is_open(board):
        raise Closed(f"the deadline of {board.name} has passed: {board.deadline:%Y-%m-%d %H:%M} UTC")
    gpu = _check(session, board, offer)
    session.execute(select(User.id).where(User.id == user.user_id).with_for_update())  # one at a time: limits are counts
    check_limits(session, user, board.name, offer.mode, settings)
    submission = Submission(
        leaderboard_id=board.id, user_id=user.user_id, code_sha256=_keep_code(session, offer.content),
        file_name=offer.file_name, gpu=gpu, mode=offer.mode,
    )  # fmt: skip
    submission.job = Job(user_id=user.user_id, gpu=gpu)
    session.add(submission)
    audit.record(session, user.name, "submit", submit_target(board.name, offer.mode), submission.code_sha256)
    session.flush()
    return submission


def find(session: Session, number: int, user: Identity) -> Submission:
    """A user's own submission, any for an administrator; its job is locked until the transaction ends. Raises NotFound."""
    job = _locked_job(session, number)
    if job is None or not (user.is_admin or job.user_id == user.user_id):
        raise NotFound(f"no submission {number} of yours")
    return job.submission


def _locked_job(session: Session, number: int) -> Job | None:
    """The job is what everybody locks first, runners that report too: nobody waits for another in a circle."""
    return session.scalar(select(Job).where(Job.submission_id == number).with_for_update())


def cancel(session: Session, number: int, user: Identity) -> None:
    """End a submission that waits or runs; its runner learns it from its next report. Raises NotFound, Conflict."""
    job = find(session, number, user).job
    if job.status in FINAL:
        raise Conflict(f"submission {number} has already ended: {job.status}")
    _end(job, "failed", f"cancelled by {user.name}")
    audit.record(session, user.name, "cancel", str(number))


def delete(session: Session, number: int, user: Identity) -> None:
    """Delete a submission with its runs, and its code if no other has it. Raises NotFound."""
    submission = find(session, number, user)
    remove(session, submission)
    audit.record(session, user.name, "delete submission", str(number), submission.code_sha256)


def mark_hacked(session: Session, number: int, reason: str, admin: Identity) -> None:
    """Take a submission out of every ranking; the reason is public. Raises NotFound, BadRequest."""
    if not reason.strip():
        raise BadRequest("a reason is needed: it is shown where the submission would rank")
    submission = find(session, number, admin)
    submission.hacked_reason = reason.strip()
    _end(submission.job, "hacked", f"taken out of the ranking: {reason.strip()}")
    audit.record(session, admin.name, "mark hacked", str(number), reason)


def remove(session: Session, submission: Submission) -> None:
    """Delete the rows of a submission, those of its runs included."""
    _locked_job(session, submission.id)  # a runner may be adding a run in this moment
    links = session.scalars(select(SubmissionRun).where(SubmissionRun.submission_id == submission.id)).all()
    run_ids = [link.run_id for link in links]
    for table, column in ((SubmissionRun, SubmissionRun.run_id), (Case, Case.run_id), (Run, Run.id)):
        session.execute(delete_rows(table).where(column.in_(run_ids)))
    session.execute(delete_rows(Job).where(Job.submission_id == submission.id))
    session.execute(delete_rows(Submission).where(Submission.id == submission.id))
    orphan = Code.sha256 == submission.code_sha256, ~exists().where(Submission.code_sha256 == Code.sha256)
    session.execute(delete_rows(Code).where(*orphan))


def _end(job: Job, status: str, error: str) -> None:
    """A final status without a runner: whoever holds the lease has lost it."""
    job.status, job.error, job.lease, job.progress = status, error, None, None
    job.ended_at = job.ended_at or utc_now()


def _check(session: Session, board: Leaderboard, offer: Offer) -> str:
    """The GPU's name as the leaderboard writes it."""
    if offer.mode not in MODES:
        raise BadRequest(f"mode {offer.mode!r} is unknown; known are {', '.join(MODES)}")
    gpus = gpus_of(session, board)
    gpu = next((known for known in gpus if known.lower() == offer.gpu.lower()), None)
    if gpu is None:
        raise BadRequest(f"{board.name} has no GPU {offer.gpu!r}; it has {', '.join(gpus) or 'none: no runner has reported'}")
    if not _is_plain(offer.file_name):
        limits = f"a plain, printable name of at most {LONGEST_NAME} bytes that ends in .py"
        raise BadRequest(f"the file name {offer.file_name[:80]!r} is not {limits}")
    if violations := check_submission(offer.content, offer.file_name):
        raise BadRequest("; ".join(violation.message for violation in violations))
    if b"\0" in offer.content or not offer.content.strip():
        raise BadRequest(f"{offer.file_name} is empty, or no text")
    return gpu


def _is_plain(name: str) -> bool:
    """One part of a path, without signs that turn a line around or break it."""
    return FILE_NAME.fullmatch(name) is not None and name.isprintable() and len(name.encode()) <= LONGEST_NAME


def _keep_code(session: Session, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    if session.get(Code, digest) is None:
        try:
            with session.begin_nested():
                session.add(Code(sha256=digest, content=content))
        except IntegrityError:  # another request has just kept the same file
            pass
    return digest
