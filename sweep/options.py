"""The options of `python -m sweep`, as --help shows them."""

import argparse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXECUTORS = ("local", "ray", "popcorn")
DESCRIPTION = """Re-tune configs/dispatch.yml: search the parameters of every backend, measure through
the harness, change an entry only where a duel against it leaves no doubt."""
EPILOG = """examples:
  what would be tried?
    python -m sweep --dry-run
  the official shapes on this machine's GPUs, in some minutes
    python -m sweep --preset quick --cases official
  without the GPU: on a leaderboard server's (POPCORN_API_URL, POPCORN_CLI_ID)
    python -m sweep --executor popcorn
  on every GPU of a Ray cluster, or on several machines that share one database
    python -m sweep --executor ray --ray-address ray://head:10001
    python -m sweep --storage postgresql+psycopg://user@host/sweeps

exit codes:
  0 done, entries changed or not          2 usage, configs/sweep.yml or dispatch.yml
  3 the kernels do not bundle or load     6 storage unreachable
  4 most settings fail or are wrong
  7 the stored study is for other kernels, another device or space
  69 the leaderboard server fails         110 no device left
  113 bad cases                           130 interrupted
Whatever the code: what was measured is stored, the same command goes on from there.
docs/sweep.md explains everything.
"""


def parser() -> argparse.ArgumentParser:
    """The options, grouped by what they are for."""
    made = argparse.ArgumentParser(
        prog="python -m sweep",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = made.add_argument_group("what is tuned").add_argument
    what("--preset", metavar="P", help="quick, normal, exhaustive, remote; default: quick, or remote on a server")
    what("--minutes", type=float, metavar="M", help="wall time after which nothing new is tried; default: the preset's")
    what("--cases", metavar="SET", help='official, smoke, a case file, or "key: value; ..."; default: as in eval.py')
    what("--backend", metavar="B", help="tune this backend alone")
    what("--device", metavar="D", help="cpu, cuda or cuda:N; default: every GPU, else the CPU")
    what("--root", type=Path, default=ROOT, metavar="DIR", help="the repository whose kernels and table are meant")
    how = made.add_argument_group("who measures").add_argument
    how("--executor", choices=EXECUTORS, default="local", help="default: local")
    how("--ray-address", metavar="A", help="the Ray cluster's address; default: RAY_ADDRESS, else a cluster of this machine")
    how("--storage", metavar="URL", help="where the study is kept; default: a SQLite file below results/sweep")
    how("--timeout-s", type=float, default=300.0, metavar="S", help="how long a step may keep its worker busy; default: 300")
    how("--restart", action="store_true", help="forget these shapes' stored studies first")
    out = made.add_argument_group("output").add_argument
    out("--dry-run", action="store_true", help="print the space of every shape; measure and change nothing")
    out("--estimate", action="store_true", help="rank gfx950 settings by the emulator's counters; nothing is changed")
    out("--spoil", action="store_true", help="put bad settings into the table on purpose, to see whether a sweep finds back")
    out("--html", type=Path, metavar="FILE", help="the report; default: results/sweep/DEVICE.html")
    return made
