"""What stands before every request: bounds on its body, and the headers that every answer carries.

A body is read whole before anything else happens, so that a client that dawdles holds a coroutine and nothing more: no
thread, no connection of the store.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import Request

from leaderboard.errors import LeaderboardError, TooLarge, TooSlow
from popcorn.rules import MAX_BYTES

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]
IsRunner = Callable[[Request], Awaitable[bool]]

FORM_BYTES = 64 << 10  # a multipart form around a file
RUNNER_BODY_BYTES = 32 << 20  # a Result with all its samples
RUNNER_PATH = "/runner/"
HEADERS = (
    (b"content-security-policy",
     b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
     b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)  # fmt: skip
NO_STORE = (b"cache-control", b"no-store")


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: Asgi, body_timeout_s: float, is_runner: IsRunner):
        self._app, self._body_timeout_s, self._is_runner = app, body_timeout_s, is_runner

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        try:
            limit = await self._limit(scope)
            async with asyncio.timeout(self._body_timeout_s):
                body = await _read_body(scope, receive, limit)
        except LeaderboardError as error:
            await _refuse(send, error)
        except TimeoutError:
            await _refuse(send, TooSlow(f"the request's body did not arrive within {self._body_timeout_s:g} s; send it again"))
        else:
            if body is not None:
                await self._app(scope, _replay(body, receive), send)


    async def _limit(self, scope: Message) -> int:
        """Of the body in bytes. A Result is large, so whoever sends one shows first who they are: else a few hundred strangers
        could fill the memory."""
        if scope["path"].startswith(RUNNER_PATH) and await self._is_runner(Request(scope)):
            return RUNNER_BODY_BYTES
        return MAX_BYTES + FORM_BYTES


async def _read_body(scope: Message, receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if the client has gone. Raises TooLarge as soon as it is known."""
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    _check_size(int(announced[:20]) if announced.isdigit() else 0, limit)
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        _check_size(size, limit)
        if not message.get("more_body"):
            return b"".join(chunks)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"a request of {size:,} bytes or more; {limit:,} are taken, {MAX_BYTES:,} of them a submission's")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once, then what the client does next."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            extra = [header for header in (*HEADERS, NO_STORE) if header[0] not in present]
            message = {**message, "headers": [*message["headers"], *extra]}
        await send(message)

    return guarded


async def _refuse(send: Send, error: LeaderboardError) -> None:
    body = json.dumps({"detail": error.told}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
