"""The calls that runners make. docs/leaderboard.md describes them."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from harness.errors import RecordError
from harness.records import from_json
from harness.result import Device, Result, result_from_json
from leaderboard import jobs
from leaderboard.accounts import Identity
from leaderboard.api.auth import runner_of
from leaderboard.api.parameters import LARGEST_NUMBER, Number, RunnerNumber
from leaderboard.errors import BadRequest, NotFound
from leaderboard.settings import Settings
from leaderboard.stages import stages
from leaderboard.store.database import Store
from leaderboard.store.models import Job, Problem, Submission
from popcorn.http_models import SystemInfo, WireError, read, to_json

RunnerUser = Annotated[Identity, Depends(runner_of)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]
Word = Annotated[str, Field(max_length=32)]
Count = Annotated[int, Field(ge=0, le=LARGEST_NUMBER)]


class Body(BaseModel):
    """A request's JSON: no key but the known ones."""

    model_config = ConfigDict(extra="forbid")


class Registration(Body):
    """What a runner offers."""

    name: Name
    gpu: Name
    device: dict[str, Any]  # harness.result.Device
    system: dict[str, Any]  # popcorn's SystemInfo


class Claim(Body):
    """Who asks for work."""

    runner_id: RunnerNumber


class Held(Body):
    """Of a job that the runner holds."""

    lease: str

    def hold(self, user: Identity) -> jobs.Hold:
        """The lease, and whose it must be."""
        return jobs.Hold(self.lease, user.user_id)


class Progress(Body):
    """Where an evaluation is."""

    mode: Word
    secret: bool
    case: Count
    cases: Count
    phase: Word
    passed: Count


class Heartbeat(Held):
    """A job goes on."""

    progress: Progress | None = None


class FoundRun(Held):
    """What one stage found."""

    secret: bool
    result: dict[str, Any]  # Result v1


class Finish(Held):
    """A job has ended."""

    outcome: str
    error: str = ""


class Release(Held):
    """A job is given back."""


def router(store: Store, settings: Settings) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/runner")
    _work(routes, store, settings)
    _reports(routes, store, settings)
    return routes


def _work(routes: APIRouter, store: Store, settings: Settings) -> None:
    @routes.post("/register")
    def register(body: Registration, user: RunnerUser) -> dict[str, int]:
        device = _record(Device, body.device)
        try:
            system = to_json(read(SystemInfo, body.system, "system"))
        except WireError as error:
            raise BadRequest(str(error)) from None
        with store.writing() as session:
            return {"runner_id": jobs.register(session, body.name, body.gpu, device, system, user.user_id).id}

    @routes.post("/claim", response_model=None)
    def claim(body: Claim, user: RunnerUser) -> dict[str, Any] | Response:
        with store.writing() as session:
            job = jobs.claim(session, jobs.find_runner(session, body.runner_id, user.user_id), settings.lease_s)
            return _task(session, job, settings) if job else Response(status_code=204)

    @routes.get("/problems/{digest}")
    def problem(digest: str, user: RunnerUser) -> dict[str, Any]:
        with store.reading() as session:
            found = session.get(Problem, digest)
            if found is None:
                raise NotFound(f"no problem {digest[:8]!r}")
            return {"root": found.root, "files": found.files}


def _reports(routes: APIRouter, store: Store, settings: Settings) -> None:
    @routes.post("/jobs/{number}/heartbeat")
    def heartbeat(number: Number, body: Heartbeat, user: RunnerUser) -> dict[str, str]:
        progress = body.progress.model_dump() if body.progress else None
        with store.writing() as session:
            jobs.heartbeat(session, number, body.hold(user), settings.lease_s, progress)
        return {"status": "ok"}

    @routes.post("/jobs/{number}/runs")
    def add_run(number: Number, body: FoundRun, user: RunnerUser) -> dict[str, int]:
        result = _result(body.result)
        with store.writing() as session:
            return {"run_id": jobs.add_run(session, number, body.hold(user), body.secret, result)}

    @routes.post("/jobs/{number}/finish")
    def finish(number: Number, body: Finish, user: RunnerUser) -> dict[str, str]:
        with store.writing() as session:
            return {"status": jobs.finish(session, number, body.hold(user), body.outcome, body.error)}

    @routes.post("/jobs/{number}/release")
    def release(number: Number, body: Release, user: RunnerUser) -> dict[str, str]:
        with store.writing() as session:
            jobs.release(session, number, body.hold(user))
        return {"status": "pending"}


def _task(session: Session, job: Job, settings: Settings) -> dict[str, Any]:
    """All that a runner needs. The secret seed is not in it: the evaluating process draws it."""
    kept = session.scalars(select(Submission).where(Submission.id == job.submission_id)).one()
    return {
        "job_id": job.id,
        "lease": job.lease,
        "lease_s": settings.lease_s,
        "attempt": job.attempts,
        "problem_sha256": kept.leaderboard.problem_sha256,
        "file_name": kept.file_name,
        "code": kept.code.content.decode(),
        "stages": [{"mode": stage.mode, "secret": stage.secret} for stage in stages(kept.mode)],
        "policy": settings.policy,
        "budget_s": settings.budget_s,
    }


def _result(data: dict[str, Any]) -> Result:
    try:
        return result_from_json(data)
    except RecordError as error:
        raise BadRequest(str(error)) from None


def _record(kind: type[Device], data: dict[str, Any]) -> Device:
    try:
        return from_json(kind, data, "device")
    except RecordError as error:
        raise BadRequest(str(error)) from None
