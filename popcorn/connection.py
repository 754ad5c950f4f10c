"""HTTP to a popcorn server with the standard library alone: JSON calls, one upload, one body of events."""

import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from popcorn.client_errors import (
    NotAPopcornServer,
    NotAuthorised,
    NotFound,
    RateLimited,
    RefusedByServer,
    ServerFault,
    ServerUnreachable,
    UsageFault,
)
from popcorn.sse import SseParser

CALL_TIMEOUT_S = 30
SILENCE_TIMEOUT_S = 60  # of a body of events; the server says something every 15 s
CHUNK_BYTES = 1 << 16
EVENTS = "text/event-stream"
DETAIL_CHARACTERS = 500
_BY_STATUS = {401: NotAuthorised, 403: NotAuthorised, 404: NotFound, 429: RateLimited}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to whoever the server names."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Connection:
    """A server's address and who calls. `token` is sent as the command line's id, the only proof that the wire knows."""

    url: str
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageFault(f"{self.url!r} is no server's address; it must look like http://127.0.0.1:8000")

    def get(self, *path: str | int, **query: str | int | None) -> Any:
        """The JSON that `path` answers. Query values of None are left out."""
        return self._json("GET", _path(path, query))

    def delete(self, *path: str | int) -> Any:
        """The JSON that deleting `path` answers."""
        return self._json("DELETE", _path(path, {}))

    def upload(self, *path: str | int, file_name: str, content: bytes) -> Any:
        """The JSON that posting a form with the one part `file` answers."""
        body, kind = _form(file_name, content)
        return self._json("POST", _path(path, {}), body, {"Content-Type": kind})

    def upload_and_listen(self, *path: str | int, file_name: str, content: bytes) -> Iterator[tuple[str, Any]]:
        """The events (name, data) that posting a form with the one part `file` answers."""
        body, kind = _form(file_name, content)
        yield from self._events("POST", _path(path, {}), body, {"Content-Type": kind})

    def listen(self, *path: str | int) -> Iterator[tuple[str, Any]]:
        """The events (name, data) of `path`."""
        yield from self._events("GET", _path(path, {}), None, {})

    def _json(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        with self._open(method, path, body, headers or {}, CALL_TIMEOUT_S) as response:
            try:
                return json.loads(response.read())
            except ValueError:
                raise NotAPopcornServer(self.url, f"{method} {path} answered something that is not JSON") from None

    def _events(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
        with self._open(method, path, body, {"Accept": EVENTS, **headers}, SILENCE_TIMEOUT_S) as response:
            if response.headers.get_content_type() != EVENTS:
                raise NotAPopcornServer(self.url, f"{method} {path} answered {response.headers.get_content_type()}, no events")
            parser = SseParser()
            while chunk := response.read1(CHUNK_BYTES):
                yield from parser.feed(chunk)

    @contextmanager
    def _open(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> Iterator[HTTPResponse]:
        """The response to one call; whatever goes wrong, now or while it is read, as one of this project's errors."""
        own = {"X-Popcorn-Cli-Id": self.token} if self.token else {}
        request = urllib.request.Request(self.url.rstrip("/") + path, body, {**own, **headers}, method=method)
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s) as response:
                yield response
        except urllib.error.HTTPError as answer:
            raise _error_of(answer, self.url) from None
        except urllib.error.URLError as fault:
            raise ServerUnreachable(self.url, str(fault.reason)) from None
        except (OSError, HTTPException) as fault:
            raise ServerUnreachable(self.url, str(fault) or type(fault).__name__) from None


def _path(segments: tuple[str | int, ...], query: Mapping[str, str | int | None]) -> str:
    given = {key: value for key, value in query.items() if value is not None}
    path = "".join(f"/{quote(str(segment), safe='')}" for segment in segments)
    return f"{path}?{urlencode(given)}" if given else path


def _form(file_name: str, content: bytes) -> tuple[bytes, str]:
    """A multipart body of one file and its content type (RFC 7578; names escaped as browsers do)."""
    boundary = secrets.token_hex(16)
    name = file_name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return head.encode() + content + f"\r\n--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def _error_of(answer: urllib.error.HTTPError, url: str) -> Exception:
    """The error that an answer of status 300 or more stands for."""
    if answer.code < 400:
        where = answer.headers.get("Location", "elsewhere")
        return NotAPopcornServer(url, f"it redirects to {where}; set POPCORN_API_URL to the address that answers")
    detail = _detail(answer)
    if answer.code >= 500:
        return ServerFault(url, answer.code, detail)
    return _BY_STATUS.get(answer.code, RefusedByServer)(url, answer.code, detail)


def _detail(answer: urllib.error.HTTPError) -> str:
    """What the server says is wrong: `{"detail": str}`, or the beginning of whatever it sent."""
    try:
        body = answer.read(CHUNK_BYTES).decode(errors="replace")
    except (OSError, HTTPException):
        return answer.reason
    try:
        said = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError):
        said = body
    text = " ".join((said if isinstance(said, str) else json.dumps(said)).split())
    return text[:DETAIL_CHARACTERS] or answer.reason
