"""A small popcorn server to test clients against: it answers what it was told to, in the form of the wire, and remembers."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BREAK = object()  # an answer: hang up without a word


@dataclass
class Call:
    """One request that came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class PopcornServer:
    """`answers`: "METHOD /path" -> what to answer, in turn; the last one is answered again and again.

    An answer is JSON to send with 200, (status, JSON), bytes of events, BREAK, or a function of the Call that gives one.
    """

    answers: dict[str, list[Any]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> "PopcornServer":
        answering = self

        class Handler(_Handler):
            server_of_test = answering

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, call: str, *answers: Any) -> None:
        """Answer these, one after the other, to `METHOD /path?query`."""
        self.answers[call] = list(answers)

    def paths(self) -> list[str]:
        """What was asked, in order."""
        return [f"{call.method} {call.path}" for call in self.calls]

    def next_answer(self, call: Call) -> Any:
        """What to say to this call."""
        self.calls.append(call)
        waiting = self.answers.get(f"{call.method} {call.path}")
        if not waiting:
            return 404, {"detail": "no such thing"}
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return answer(call) if isinstance(answer, Callable) else answer


class _Handler(BaseHTTPRequestHandler):
    server_of_test: PopcornServer

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self.server_of_test.next_answer(Call(self.command, self.path, dict(self.headers), body))
        if answer is BREAK:
            self.close_connection = True
            return
        status, said = answer if isinstance(answer, tuple) else (200, answer)
        kind = "text/event-stream" if isinstance(said, bytes) else "application/json"
        content = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status < 400 and status >= 300:
            self.send_header("Location", "http://elsewhere.invalid/")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        """Quiet."""
