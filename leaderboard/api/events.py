"""Waiting for a submission over server-sent events. Whoever disconnects loses nothing: the job goes on, another call resumes.

A status is repeated every few seconds, so that neither side takes a long evaluation for a dead connection.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from leaderboard.accounts import Identity
from leaderboard.api.wire import final_event, status_event
from leaderboard.errors import LimitReached
from leaderboard.store.database import Store
from leaderboard.store.models import FINAL, Submission
from popcorn.http_models import to_json
from popcorn.sse import sse_frame

POLL_S = 1.0
REPEAT_S = 10.0
RETRY_S = 10


class Waiters:
    """How many connections each user keeps open; one event loop, so a plain counter."""

    def __init__(self, limit: int):
        self._limit, self._open = limit, Counter[int]()

    @contextlib.contextmanager
    def seat(self, user: Identity) -> Iterator[contextlib.ExitStack]:
        """One more connection, taken before anything is awaited. It is given back with the block, unless what it was taken for
        has moved on: then whoever closes the stack does it. Raises LimitReached."""
        if self._open[user.user_id] >= self._limit:
            raise LimitReached(f"{self._limit} connections of yours already wait for results; close one, or poll", RETRY_S)
        self._open[user.user_id] += 1
        with contextlib.ExitStack() as seat:
            seat.callback(self._leave, user.user_id)
            yield seat

    def _leave(self, user_id: int) -> None:
        self._open[user_id] -= 1
        if not self._open[user_id]:
            del self._open[user_id]


class EventAnswer(StreamingResponse):
    """The HTTP answer; holds its seat until it has ended, however it ends."""

    def __init__(self, frames: AsyncIterator[bytes], seat: contextlib.ExitStack):
        super().__init__(frames, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._seat = seat.pop_all()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._seat:
            await super().__call__(scope, receive, send)


async def frames_of(store: Store, number: int) -> AsyncIterator[bytes]:
    """`status` frames until the submission has ended, then one `result` or `error`."""
    said, said_at = b"", -REPEAT_S
    clock = asyncio.get_running_loop().time
    while True:
        event, data = await run_in_threadpool(_reading(store, _look), number)
        frame = sse_frame(event, data)
        if event != "status":
            yield frame
            return
        if frame != said or clock() - said_at >= REPEAT_S:
            said, said_at = frame, clock()
            yield frame
        await asyncio.sleep(POLL_S)


def _reading(store: Store, look: Callable[..., Any]) -> Callable[[int], Any]:
    def read(number: int) -> Any:
        with store.reading() as session:
            return look(session, number)

    return read


def _look(session: Any, number: int) -> tuple[str, dict[str, Any]]:
    kept = session.get(Submission, number)
    if kept is None:
        return "error", {"status": "error", "detail": f"submission {number} has been deleted"}
    return final_event(session, number) if kept.job.status in FINAL else ("status", to_json(status_event(session, number)))
