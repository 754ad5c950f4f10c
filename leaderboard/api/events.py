"""Waiting for a submission over server-sent events. Whoever disconnects loses nothing: the job goes on, another call resumes.

A status is repeated every few seconds, so that neither side takes a long evaluation for a dead connection.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

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

    def check(self, user: Identity) -> None:
        """Raise LimitReached if the user may not open another one."""
        if self._open[user.user_id] >= self._limit:
            raise LimitReached(f"{self._limit} connections of yours already wait for results; close one, or poll", RETRY_S)

    async def follow(self, user: Identity, frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same frames, counted as one connection until they end."""
        self._open[user.user_id] += 1
        try:
            async for frame in frames:
                yield frame
        finally:
            self._open[user.user_id] -= 1


def answer(frames: AsyncIterator[bytes]) -> StreamingResponse:
    """The HTTP answer."""
    return StreamingResponse(frames, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


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
