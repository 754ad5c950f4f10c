"""GET /live: tells open pages that something has happened, so that they fetch themselves again. It says nothing else."""

import asyncio
from collections.abc import AsyncIterator

from fastapi.concurrency import run_in_threadpool
from sqlalchemy import func, select

from leaderboard.store.database import Store
from leaderboard.store.models import Job
from popcorn.sse import KEEP_ALIVE, sse_frame

LOOK_S = 1.0
KEEP_ALIVE_S = 15.0
LONGEST_S = 600.0  # browsers come back by themselves
MOST_LISTENERS = 200  # further pages ask every few seconds instead


class Live:
    """The pages that listen to one store. However many they are, it is looked at once in LOOK_S."""

    def __init__(self, store: Store):
        self._store, self._lock = store, asyncio.Lock()
        self._seen, self._seen_at, self._listeners = "", float("-inf"), 0

    @property
    def full(self) -> bool:
        """Whether no more can listen."""
        return self._listeners >= MOST_LISTENERS

    async def frames(self) -> AsyncIterator[bytes]:
        """An event whenever the queue has changed."""
        clock = asyncio.get_running_loop().time
        started = said_at = clock()
        self._listeners += 1
        try:
            yield KEEP_ALIVE
            told = await self._look()
            while clock() - started < LONGEST_S:
                await asyncio.sleep(LOOK_S)
                seen = await self._look()
                if seen != told or clock() - said_at >= KEEP_ALIVE_S:
                    yield sse_frame("queue", {}) if seen != told else KEEP_ALIVE
                    told, said_at = seen, clock()
        finally:
            self._listeners -= 1

    async def _look(self) -> str:
        async with self._lock:
            clock = asyncio.get_running_loop().time
            if clock() - self._seen_at >= LOOK_S / 2:
                self._seen, self._seen_at = await run_in_threadpool(self._read), clock()
            return self._seen

    def _read(self) -> str:
        """Differs whenever a job has come, gone, begun, ended or reported."""
        times = (func.max(column) for column in (Job.id, Job.started_at, Job.heartbeat_at, Job.ended_at))
        with self._store.reading() as session:
            return str(session.execute(select(func.count(), *times)).one())
