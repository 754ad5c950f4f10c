"""`python -m leaderboard runner`: one runner, or with Ray as many as evaluations may run at a time."""

import argparse
import contextlib
import logging
import os
import platform
import re
import signal
import sys
import threading

from leaderboard.errors import BadRequest
from leaderboard.runner.executor import Executor, LocalExecutor
from leaderboard.runner.loop import Runner
from leaderboard.runner.server import Server

TOKEN_VARIABLE = "KERNELPROOF_TOKEN"


def run(options: argparse.Namespace) -> int:
    """Take jobs until interrupted; a job under way is given back."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    token = _token(options.token)
    name = options.name or re.sub(r"[^A-Za-z0-9 ._-]", "-", platform.node())[:60] or "runner"
    runners = [
        Runner(Server(options.server, token), _executor(options), _numbered(name, slot, options.slots), options.gpu)
        for slot in range(options.slots)
    ]
    if options.token == "-":
        threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: [runner.stop() for runner in runners])
    others = [threading.Thread(target=runner.run, daemon=True) for runner in runners[1:]]
    for thread in others:
        thread.start()
    runners[0].run()
    for thread in others:
        thread.join()
    return 0


def _executor(options: argparse.Namespace) -> Executor:
    if options.executor == "ray":
        from leaderboard.runner.ray_executor import RayExecutor

        return RayExecutor(is_cpu=options.gpu == "CPU")
    if options.slots != 1:
        raise BadRequest("--slots belongs to --executor ray: on one machine every device needs a runner of its own")
    return LocalExecutor()


def _token(given: str | None) -> str:
    token = sys.stdin.readline().strip() if given == "-" else given or os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        make = "`python -m leaderboard tokens create NAME --role runner` makes one"
        raise BadRequest(f"no token in --token or {TOKEN_VARIABLE}; {make}")
    return token


def _numbered(name: str, slot: int, slots: int) -> str:
    return name if slots == 1 else f"{name}-{slot + 1}"


def _end_with_parent() -> None:
    """The server that started this runner has gone: so has the job's lease, and the evaluation ends with this process."""
    with contextlib.suppress(OSError):
        while os.read(0, 1 << 10):
            pass
    os._exit(0)
