"""A stand-in for a popcorn server: the wire of a streamed benchmark run, its figures by the simulation of a device.

It runs no kernel: it reads from the submission which variant serves which shape.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from simulated import SimulatedExecutor, target

from sweep.variant import Ask, Shape, variant_from


class StandIn:
    """Serves on a free port. `shapes`: its benchmarks; `simulated`: who knows the times; `faults`: answers to give instead of a
    run, taken from the front: an HTTP status with a detail, "hang up", "crash", or an `error` event's detail as a tuple."""

    def __init__(self, simulated: SimulatedExecutor, shapes: list[Shape]):
        self.simulated, self.shapes = simulated, shapes
        self.faults: list = []
        self.received: list[dict] = []
        self.paths: list[str] = []
        self.stop_at_failure = True
        standin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                standin.paths.append(self.path)
                standin.answer(self, body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, tuple) and isinstance(fault[0], int):
            return self.send(handler, fault[0], "application/json", json.dumps({"detail": fault[1]}).encode())
        choices = choices_in(body.decode())
        self.received.append(choices)
        frames = [frame("status", {"message": "queued"}), b": a comment\n\n", frame("status", {"message": "running"})]
        if fault == "hang up":
            return self.send(handler, 200, "text/event-stream", b"".join(frames))
        if isinstance(fault, tuple):
            return self.send(handler, 200, "text/event-stream", frame("error", {"status": "error", "detail": fault[1]}))
        keys, code = ({}, 139) if fault == "crash" else self.figures(choices)
        frames.append(frame("result", {"status": "success", "results": [full_result(keys, code)], "reports": ["report"]}))
        self.send(handler, 200, "text/event-stream", b"".join(frames))

    def figures(self, choices: dict) -> tuple[dict[str, str], int]:
        """The pipe's keys; the first failure ends the run, as in the official evaluator."""
        keys = {"benchmark-count": str(len(self.shapes))}
        for number, shape in enumerate(self.shapes):
            variant = variant_from(choices[str(shape)]) if str(shape) in choices else None
            (outcome,) = self.simulated.measure(Ask(target(shape), (variant,), 1))
            head = f"benchmark.{number}"
            keys[f"{head}.spec"] = target(shape).case.text
            if outcome.status == "crash":
                return {}, 139
            if not outcome.ok:
                keys |= {f"{head}.status": "fail", f"{head}.error": outcome.message}
                if self.stop_at_failure:
                    return keys, 112
                continue
            mean = outcome.samples_ns[0]
            keys |= {f"{head}.mean": f"{mean}.25", f"{head}.runs": "100", f"{head}.std": "5", f"{head}.err": "0.5"}
        return keys, 0

    @staticmethod
    def send(handler: BaseHTTPRequestHandler, status: int, kind: str, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def frame(event: str, data: dict) -> bytes:
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()


def choices_in(body: str) -> dict:
    """shape -> variant, as the tail of the submission has it."""
    found = re.search(r'SWEEP_VARIANTS = sweep_json\.loads\(r"""(.*?)"""\)', body)
    variants = json.loads(found[1]) if found else {}
    return {shape: json.loads(text) for shape, text in variants.items()}


def full_result(keys: dict[str, str], code: int) -> dict:
    """A FullResult as the wire has it."""
    run = {
        "success": code in (0, 112), "passed": code == 0, "command": "python3 eval.py benchmark", "stdout": "",
        "stderr": "" if code in (0, 112) else "Segmentation fault", "exit_code": code, "duration": 1.5, "result": keys,
    }  # fmt: skip
    start, end = "2026-01-01T00:00:00", "2026-01-01T00:00:02"
    evaluation = {"start": start, "end": end, "compilation": None, "run": run, "profile": None}
    system = {
        "gpu": "X1", "device_count": 1, "cpu": "c", "runtime": "r", "platform": "p", "torch": "2", "hostname": "h",
    }  # fmt: skip
    return {"success": True, "error": "", "system": system, "runs": {"benchmark": evaluation}}
