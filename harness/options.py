"""The options of eval.py, as --help shows them."""

import argparse
from pathlib import Path

from harness.history import DEFAULT_FILE

ROOT = Path(__file__).parent.parent
MODES = ("test", "benchmark", "leaderboard", "profile")
BACKENDS = ("auto", "torch", "triton", "cuda", "hip", "aiter")
POLICIES = ("robust", "official")
DEFAULT_TIMEOUT_S = 300.0
DESCRIPTION = """Evaluate a submission: is it right, how long does it take, and how far is that
from what the hardware can do?"""
EPILOG = """examples:
  is it right?
    eval.py --mode test --cases official
  how fast is it? smoke cases on a CPU, the official ones on a GPU
    eval.py
    eval.py --cases official --json result.json
  one case of your own, here ragged; `dist: outlier` and others make it harder
    eval.py --cases "batchsize: 4; qseqlen: 2; kvseqlen: 777; seed: 1; kvmin: 0"
  what would the leaderboard print?
    eval.py --mode leaderboard --policy official
  is my change faster? both run in turn, sample by sample
    eval.py --submission new.py --baseline old.py
    eval.py --submission new.py --baseline old.py --fail-on-regression
  where does the time go?
    eval.py --mode profile
  another problem folder in the popcorn format
    eval.py --problem path/to/problem
  what did I measure before?
    eval.py --record && python -m harness history

exit codes:
  0 every verdict passes     2 usage                     3 submission not loaded
  4 slower than --baseline   5 below the physical floor  110 device error
  112 a verdict fails        113 bad cases               114 timeout
  130 interrupted; what was measured is kept

docs/reading-results.md explains every figure and warning, docs/policies.md how
they are taken.
"""


def parser() -> argparse.ArgumentParser:
    """The options, grouped by what they are for."""
    made = argparse.ArgumentParser(
        prog="eval.py",
        usage="eval.py [--mode MODE] [--submission FILE] [--cases SET] [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _what(made.add_argument_group("what is evaluated"))
    _how(made.add_argument_group("how it is measured"))
    _comparison(made.add_argument_group("comparison and history"))
    _output(made.add_argument_group("output"))
    return made


def _what(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--mode", choices=MODES, default="benchmark", help="default: benchmark")
    add("--submission", type=Path, metavar="FILE", help="default: the problem's own submission.py or template")
    add("--cases", metavar="SET", help='official, smoke, a case file, or "key: value; ..."')
    add("--problem", type=Path, default=ROOT / "configs", metavar="DIR", help="a popcorn problem folder; default: mixed MLA")
    add("--backend", choices=BACKENDS, default="auto", help="force one of the submission's backends")
    add("--device", metavar="D", help="cpu, cuda or cuda:N; default: the first GPU, else the CPU")


def _how(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--policy", choices=POLICIES, default="robust", help="rules of measurement; default: robust")
    add("--budget-s", type=_positive, metavar="S", help="robust: wall time to sample one case")
    limit = f"limit per case; default: what task.yml grants the whole mode, at most {DEFAULT_TIMEOUT_S:g}"
    add("--timeout-s", type=_positive, metavar="S", help=limit)
    add("--seed", type=int, metavar="N", help="secret seed, combined with every case's own")


def _comparison(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--baseline", type=Path, metavar="FILE", help="another submission, measured in turn with this one on the same inputs")
    add("--fail-on-regression", action="store_true", help="exit code 4 if a case or the whole is slower than --baseline")
    record = f"keep the result in a history file; default: {DEFAULT_FILE}"
    add("--record", type=Path, nargs="?", const=DEFAULT_FILE, metavar="FILE", help=record)


def _output(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--json", type=Path, metavar="FILE", help="write the Result here, again after every case")
    add("--html", type=Path, metavar="FILE", help="the same as one page with plots, to look at and to pass on")
    add("--markdown", type=Path, metavar="FILE", help="the same as a table for a pull request")
    add("--csv", type=Path, metavar="FILE", help="the same as a line per case, samples included")
    add("--no-color", action="store_true", help="no colour (NO_COLOR works too)")


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value
