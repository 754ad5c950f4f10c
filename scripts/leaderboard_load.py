"""Load a server: many clients submit at once and poll; how long do calls take, is anything lost, does everybody get a turn?

    python scripts/leaderboard_load.py [--submissions 200] [--clients 20] [--runners 2] [--stage-s 0.02] [--json FILE]

Evaluations are stubs (scripts/stub_evaluation.py) that take `--stage-s` a stage: what is measured is server, store, queue and
runners. Every client polls its submissions and opens pages, as people do.
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
from sqlalchemy import select

from leaderboard.store.models import FINAL, Job
from scripts.leaderboard_site import BOARD, GPU, Site, running, wait_for_runners

PAGES = ("/", "/queue", f"/board/{BOARD}", "/leaderboards", "/user/submissions?limit=20")
PAUSE_S = 2.5  # of a client between two calls, on average: it polls every 5 s as the public one does, and opens a page between


@dataclass
class Measured:
    """What the clients saw; every time in ms."""

    post_ms: list[float] = field(default_factory=list)
    get_ms: list[float] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def measure(site: Site, submissions: int, clients: int, stage_s: float) -> Measured:
    """Submit and poll until everything has ended."""
    seen = Measured()
    share = [submissions // clients + (n < submissions % clients) for n in range(clients)]
    threads = [threading.Thread(target=_client, args=(site, n, count, stage_s, seen)) for n, count in enumerate(share)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def _client(site: Site, number: int, count: int, stage_s: float, seen: Measured) -> None:
    draw = random.Random(number)
    with site.client(f"user{number}") as client:
        mine = [_submit(client, f"# user{number} {k}\n# stub: sleep {stage_s}\n", seen) for k in range(count)]
        waiting = [n for n in mine if n]
        while waiting:
            time.sleep(draw.uniform(0, 2 * PAUSE_S))
            found = _get(client, f"/user/submissions/{waiting[0]}", seen)
            if found and found.json()["done"]:
                waiting.pop(0)
            time.sleep(draw.uniform(0, 2 * PAUSE_S))
            _get(client, draw.choice(PAGES), seen)


def _submit(client: httpx.Client, code: str, seen: Measured) -> int | None:
    began = time.perf_counter()
    answer = client.post(f"/submission/{BOARD}/{GPU}/leaderboard", files={"file": ("submission.py", code.encode())})
    seen.post_ms.append(1e3 * (time.perf_counter() - began))
    if answer.status_code != 202:
        seen.faults.append(f"POST: {answer.status_code} {answer.text[:200]}")
        return None
    seen.numbers.append(answer.json()["details"]["id"])
    return seen.numbers[-1]


def _get(client: httpx.Client, path: str, seen: Measured) -> httpx.Response | None:
    began = time.perf_counter()
    answer = client.get(path)
    seen.get_ms.append(1e3 * (time.perf_counter() - began))
    if answer.status_code != 200:
        seen.faults.append(f"GET {path}: {answer.status_code}")
        return None
    return answer


def unfair_starts(jobs: list[Job]) -> int:
    """Jobs that began while a user who had been served longer ago, or never, was waiting."""
    never, served, unfair = datetime.min.replace(tzinfo=UTC), {}, 0
    started = sorted((job for job in jobs if job.started_at), key=lambda job: job.started_at or never)
    for place, job in enumerate(started):
        assert job.started_at is not None
        waiting = {other.user_id for other in started[place + 1 :] if other.created_at < job.started_at}
        mine = served.get(job.user_id, never)
        unfair += any(served.get(user, never) < mine for user in waiting if user != job.user_id)
        served[job.user_id] = job.started_at
    return unfair


def report(site: Site, seen: Measured, took_s: float, options: argparse.Namespace) -> dict[str, Any]:
    """All that was found."""
    with site.store.reading() as session:
        jobs = list(session.scalars(select(Job)))
        statuses = [job.status for job in jobs]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "load_average": round(os.getloadavg()[0], 1),
        **{name: getattr(options, name) for name in ("clients", "runners", "stage_s")},
        "seconds": round(took_s, 1),
        "submissions": len(seen.numbers),
        "lost": len(set(seen.numbers) - {job.submission_id for job in jobs}),
        "not_final": sum(status not in FINAL for status in statuses),
        "succeeded": statuses.count("succeeded"),
        "unfair_starts": unfair_starts(jobs),
        "faults": seen.faults[:10],
        "gets": len(seen.get_ms),
        **_quantiles("get", seen.get_ms),
        **_quantiles("post", seen.post_ms),
    }


def _quantiles(name: str, times_ms: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times_ms, n=100)
    return {f"{name}_p{percent}_ms": round(cuts[percent - 1], 1) for percent in (50, 95, 99)}


def main() -> int:
    """Measure and tell; exit code 1 if anything was lost, failed or unfair."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--runners", type=int, default=2)
    parser.add_argument("--stage-s", type=float, default=0.02)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kernelproof-load-") as folder,
        running(Path(folder), options.runners, ("--runner", "none")) as (site, _),
    ):
        wait_for_runners(site, options.runners)
        began = time.monotonic()
        seen = measure(site, options.submissions, options.clients, options.stage_s)
        found = report(site, seen, time.monotonic() - began, options)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    bad = found["lost"] or found["unfair_starts"] or found["faults"] or found["succeeded"] < options.submissions
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
