"""The live channel: an event when the queue changes, and however many listen the store is looked at once."""

import asyncio

import pytest
from web_site import demo_site

from leaderboard.store.models import Job
from leaderboard.web import live
from leaderboard.web.live import Live
from popcorn.sse import KEEP_ALIVE, sse_frame

PATIENCE_S = 600


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return demo_site(tmp_path_factory.mktemp("site")).store


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(live, "LOOK_S", 0.01)
    monkeypatch.setattr(live, "KEEP_ALIVE_S", 0.02)


def touch(store):
    with store.writing() as session:
        job = session.query(Job).filter_by(status="pending").first()
        job.attempts += 1
        job.started_at = job.created_at if job.started_at is None else None


async def until(frames, wanted):
    """Frames up to the wanted one."""
    async with asyncio.timeout(PATIENCE_S):
        async for frame in frames:
            if frame == wanted:
                return True
    return False


def test_a_change_wakes_every_listener(store):
    async def listen():
        pages = Live(store)
        listeners = [pages.frames() for _ in range(3)]
        for frames in listeners:
            assert await anext(frames) == KEEP_ALIVE
            assert await until(frames, KEEP_ALIVE)  # it has looked once
        await asyncio.to_thread(touch, store)
        assert all([await until(frames, sse_frame("queue", {})) for frames in listeners])
        for frames in listeners:
            await frames.aclose()
        return pages

    assert not asyncio.run(listen()).full


def test_no_more_listen_than_there_is_room_for(store, monkeypatch):
    monkeypatch.setattr(live, "MOST_LISTENERS", 1)

    async def listen():
        pages = Live(store)
        frames = pages.frames()
        await anext(frames)
        full = pages.full
        await frames.aclose()
        return full, pages.full

    assert asyncio.run(listen()) == (True, False)


def test_it_ends_by_itself(store, monkeypatch):
    monkeypatch.setattr(live, "LONGEST_S", 0.05)

    async def listen():
        async with asyncio.timeout(PATIENCE_S):
            return [frame async for frame in Live(store).frames()]

    assert set(asyncio.run(listen())) <= {KEEP_ALIVE, sse_frame("queue", {})}
