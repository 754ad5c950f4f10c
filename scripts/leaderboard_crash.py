"""Kill the server and its runners with SIGKILL at random moments while people submit, then see what became of every submission.

    python scripts/leaderboard_crash.py [--kills 20] [--seed N]

Each submission says in a comment how its (stub) evaluation ends, so that a true final status is known beforehand. Exit code
1 if an accepted submission is lost, never ends, or ends otherwise.
"""

import argparse
import contextlib
import itertools
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from leaderboard import queries
from leaderboard.accounts import Identity
from scripts.leaderboard_site import BOARD, GPU, Site, end, running, wait_for_runners

RUNNERS = 2
LEASE_S = 6.0
END_TIMEOUT_S = 300.0
# What the submission says -> how it must end, and the first words of the reason.
ENDINGS = {
    "": ("succeeded", ""),
    "# stub: wrong": ("failed", "❌ Testing failed"),
    "# stub: wrong in secret": ("failed", "❌ Testing failed in the secret run"),
    "# stub: fault": ("failed", "❌ the evaluation did not end: the stub has no device"),
}
ADMIN = Identity(0, "crash test", "admin")
GIVEN_UP = "❌ given up after"  # its runner was killed three times over it: true as well


@dataclass
class Tally:
    """What people were told."""

    accepted: dict[int, str] = field(default_factory=dict)  # number -> what it says
    unanswered: int = 0
    faults: list[str] = field(default_factory=list)


def crash_test(kills: int, seed: int, folder: Path) -> tuple[Tally, list[str]]:
    """What was accepted, and what is wrong with how it ended."""
    draw, tally, stop = random.Random(seed), Tally(), threading.Event()
    with running(folder, RUNNERS, ("--runner", "none", "--lease-s", str(LEASE_S))) as (site, runners):
        people = [threading.Thread(target=_submit, args=(site, f"user{n}", tally, stop)) for n in range(3)]
        wait_for_runners(site, RUNNERS)
        for person in people:
            person.start()
        for _ in range(kills):
            time.sleep(draw.uniform(0.2, 2.0))
            _kill_one(site, runners, draw)
        stop.set()
        for person in people:
            person.join()
        return tally, [*tally.faults, *_faults(site, tally)]


def _kill_one(site: Site, runners: list, draw: random.Random) -> None:
    victim = draw.randrange(RUNNERS + 1)
    if victim == RUNNERS:
        end(site.server)
        time.sleep(draw.uniform(0.0, 1.0))
        site.start_server()
    else:
        end(runners[victim])
        runners[victim] = site.start_runner()


def _submit(site: Site, name: str, tally: Tally, stop: threading.Event) -> None:
    """Submit one after the other, whatever happens to the server."""
    client = site.client(name)
    for count, says in zip(itertools.count(), itertools.cycle(ENDINGS)):
        if stop.is_set():
            return client.close()
        code = f"# {name} {count}\n# stub: sleep 0.05\n{says}\n"
        try:
            answer = client.post(f"/submission/{BOARD}/{GPU}/leaderboard", files={"file": ("submission.py", code.encode())})
        except httpx.HTTPError:
            tally.unanswered += 1
            time.sleep(0.2)
            continue
        if answer.status_code == 202:
            tally.accepted[answer.json()["details"]["id"]] = says
        elif answer.status_code != 400:  # 400: no runner has registered yet
            tally.faults.append(f"{answer.status_code} {answer.text}")
        time.sleep(0.3)


def _faults(site: Site, tally: Tally) -> list[str]:
    """Wait until everything has ended; what is not as it must be."""
    until = time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < until:
        with contextlib.suppress(Exception), site.store.reading() as session:
            if not queries.queue(session):
                break
        time.sleep(0.5)
    with site.store.reading() as session:
        rows = {row.id: row for row in queries.submissions(session, limit=100_000)}
        codes = {number: queries.code(session, number, ADMIN) or "" for number in rows}
    faults = [f"submission {number} was accepted and is lost" for number in tally.accepted if number not in rows]
    for number, row in rows.items():  # those whose answer was lost too
        says = codes[number].splitlines()[2]
        status, reason = ENDINGS[says]
        true = (row.status, row.error.startswith(reason)) == (status, True) or row.error.startswith(GIVEN_UP)
        if not true:
            faults.append(f"submission {number} ({says or 'honest'}) ended as {row.status}: {row.error}")
    return faults


def main() -> int:
    """Kill, look, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelproof-crash-") as folder:
        began = time.monotonic()
        tally, faults = crash_test(options.kills, options.seed, Path(folder))
    took_s, said = time.monotonic() - began, Counter(says or "honest" for says in tally.accepted.values())
    print(f"{options.kills} kills (seed {options.seed}) in {took_s:.0f} s, {tally.unanswered} calls unanswered")
    print(f"{len(tally.accepted)} submissions accepted: {dict(said)}")
    print("\n".join(faults) or "every accepted submission ended with its true status")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
