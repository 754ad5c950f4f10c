"""Follow a submission until it is done, whatever happens to the connection: the server keeps it, its number is enough."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from popcorn.client import Client
from popcorn.client_errors import (
    ClientError,
    NotAPopcornServer,
    NotFound,
    RateLimited,
    RefusedByServer,
    ServerFault,
    ServerUnreachable,
)
from popcorn.http_models import FAILED_STATUSES, SubmissionDetail

POLL_S = 5.0  # what the public client does
RETRY_S = 2.0
PATIENCE_S = 3600.0  # without one answer
PASSING = (ServerUnreachable, ServerFault, RateLimited)  # trouble that may be over at the next call
NO_EVENTS = (NotFound, RefusedByServer, NotAPopcornServer)  # the server has no such call

Sleep = Callable[[float], None]
Tell = Callable[[str], None]


def follow(client: Client, submission_id: int, tell: Tell, sleep: Sleep = time.sleep) -> Iterator[SubmissionDetail]:
    """The submission as it stands, again whenever something has happened; the last one is over.

    Events wake it where the server has them; else, and after a broken connection, it asks every few seconds. `tell` gets
    what the server says meanwhile, a line each, and that the connection broke or is back.
    """
    waiter = _Waiter(client, submission_id, tell, sleep)
    while True:
        submission = _ask(client, submission_id, tell, sleep)
        yield submission
        if is_over(submission):
            return
        waiter.wait()


def is_over(submission: SubmissionDetail) -> bool:
    """Whether nothing more will come."""
    return submission.done or status_of(submission) in FAILED_STATUSES


def status_of(submission: SubmissionDetail) -> str:
    """The job's status; from a server that tells none, what `done` says."""
    told = submission.job.status if submission.job else None
    return told or ("succeeded" if submission.done else "pending")


class _Waiter:
    """Waits for the next event, or for POLL_S where there are none."""

    def __init__(self, client: Client, submission_id: int, tell: Tell, sleep: Sleep):
        self._client, self._id, self._tell, self._sleep = client, submission_id, tell, sleep
        self._events: Iterator[tuple[str, Any]] | None = None
        self._has_events, self._told = True, ""

    def wait(self) -> None:
        if not self._has_events:
            return self._sleep(POLL_S)
        try:
            event = self._next()
        except NO_EVENTS:
            self._has_events = False
            return self._sleep(POLL_S)
        except ClientError:
            event = None
        if event is None:  # the server has hung up, or the connection broke
            self._events = None
            return self._sleep(RETRY_S)
        self._say(*event)

    def _next(self) -> tuple[str, Any] | None:
        if self._events is None:
            self._events = self._client.events(self._id)
        return next(self._events, None)

    def _say(self, name: str, data: Any) -> None:
        """After a new connection the server repeats where it stands: said once is enough."""
        message = str(data.get("message", "")) if name == "status" and isinstance(data, dict) else ""
        if message and message != self._told:
            self._told = message
            self._tell(message)


def _ask(client: Client, submission_id: int, tell: Tell, sleep: Sleep) -> SubmissionDetail:
    """The submission; a server that cannot answer now is asked again for PATIENCE_S."""
    tries = 0
    while True:
        try:
            submission = client.submission(submission_id)
        except PASSING as fault:
            tries += 1
            if tries * RETRY_S >= PATIENCE_S:
                raise
            if tries == 1:
                tell(f"{fault}. Nothing is lost: asking again every {RETRY_S:.0f} s.")
            sleep(RETRY_S)
            continue
        if tries:
            tell("The server answers again.")
        return submission
