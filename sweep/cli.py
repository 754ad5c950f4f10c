"""The command line: options to executor and searches, decisions to files, errors to exit codes."""

from __future__ import annotations

import argparse
import io
import sys
from dataclasses import replace
from pathlib import Path

from harness.errors import HarnessError
from harness.errors import SubmissionNotLoaded as HarnessNotLoaded
from harness.files import replace_file
from popcorn.cases import CaseError
from popcorn.client import Client
from popcorn.client_errors import ClientError
from popcorn.errors import PopcornError
from popcorn.settings import connection_from
from sweep.bench import device_names
from sweep.bench_config import BenchConfig
from sweep.errors import Exit, SweepError, UsageError
from sweep.estimate import estimate_all
from sweep.executor import Executor
from sweep.finish import apply_decisions
from sweep.ledger import Ledger
from sweep.local import LocalExecutor
from sweep.options import parser
from sweep.outcome import outcomes_of
from sweep.popcorn_run import BenchmarkServer
from sweep.ray_cluster import RayExecutor
from sweep.remote import PopcornExecutor
from sweep.report_page import page
from sweep.report_text import space_lines, summary
from sweep.run import Deadline, Sweep
from sweep.setup import Setup, set_up
from sweep.spoil import spoiled
from sweep.store import Store, default_storage
from sweep.submission import submission_text
from sweep.table import Change


def main(argv: list[str]) -> int:
    """Run the command line; the exit code. A user's mistake is one line on stderr."""
    options = parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # whoever kills this has read how far it got
    try:
        return run(options)
    except SweepError as error:
        return _report(str(error), error.exit_code)
    except HarnessError as error:
        return _report(str(error), Exit.NOT_LOADED if isinstance(error, HarnessNotLoaded) else error.exit_code)
    except CaseError as error:
        return _report(str(error), Exit.BAD_CASES)
    except (ClientError, PopcornError) as error:
        return _report(str(error), Exit.USAGE)
    except KeyboardInterrupt:
        return _report("interrupted; what was measured is stored: the same command goes on", Exit.INTERRUPTED)


def _report(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return int(code)


def run(options: argparse.Namespace) -> int:
    """Do as `options` say; the exit code."""
    _refuse_contradictions(options)
    setup = estimate_setup(options) if options.estimate else set_up(options)
    if options.estimate:
        estimate_all(setup)
    elif options.dry_run:
        dry_run(setup)
    elif options.spoil:
        spoil(setup)
    else:
        tune(setup, options)
    return int(Exit.OK)


def _refuse_contradictions(options: argparse.Namespace) -> None:
    chosen = [f"--{name.replace('_', '-')}" for name in ("dry_run", "estimate", "spoil") if getattr(options, name)]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)}: each is a run of its own; give one of them")
    if not options.timeout_s > 0:
        raise UsageError(f"--timeout-s {options.timeout_s:g}: has to be more than 0")
    if options.html and (options.html.is_dir() or not options.html.parent.is_dir()):
        raise UsageError(f"--html {options.html}: not a file in an existing folder")
    if options.executor == "popcorn" and options.device:
        raise UsageError(f"--device {options.device}: --executor popcorn measures on the leaderboard's GPU; leave it out")


def estimate_setup(options: argparse.Namespace) -> Setup:
    """The setup of an estimate: the leaderboard's cases and GPU, with the quick preset's number of settings."""
    asked = argparse.Namespace(**{**vars(options), "executor": "popcorn", "backend": "hip"})
    asked.preset = options.preset or "quick"
    setup = set_up(asked)
    return replace(setup, via="estimate")


def dry_run(setup: Setup) -> None:
    """Print the space of every shape."""
    preset = setup.preset
    limit = f", at most {preset.minutes:g} minutes" if preset.minutes else ""
    whole = f"backends of up to {preset.whole} settings whole, of others " if preset.whole else ""
    tried = "every setting" if preset.exhaustive else f"{whole}{preset.trials} settings and neighbours of the best"
    print(f"{setup.problem.name} on {setup.machine.name}, `{setup.label}` in dispatch.yml")
    print(f"preset {preset.name}: {tried} per shape{limit}")
    for target, space in zip(setup.targets, setup.spaces(), strict=True):
        print("\n".join(space_lines(target, space, setup.table.entry(setup.label, target.shape))))


def spoil(setup: Setup) -> None:
    """Put bad settings into the table."""
    changes = []
    for target, space in zip(setup.targets, setup.spaces(), strict=True):
        variant = spoiled(space, setup.table.entry(setup.label, target.shape))
        changes.append(Change(target.shape, variant, {"spoiled": "on purpose"}))
    setup.table.apply(setup.label, changes)
    print(setup.table.diff())
    setup.table.write()
    print(f"{setup.table.path} now holds bad settings for {setup.label}; `git checkout` it, or let a sweep find back")


def tune(setup: Setup, options: argparse.Namespace) -> None:
    """Search, decide, write."""
    deadline = Deadline(setup.preset.minutes)
    store = Store(options.storage or default_storage(setup.root), setup.config)
    searches = setup.searches(store, options.restart, deadline.is_late)
    html = options.html or setup.root / "results" / "sweep" / f"{setup.label}.html"
    html.parent.mkdir(parents=True, exist_ok=True)
    note = f"Measured by {setup.via}, preset {setup.preset.name}, driver {setup.machine.driver}, torch {setup.machine.torch}."

    def write_page(running: bool) -> None:
        outcomes = outcomes_of(searches, sweep.decisions)
        replace_file(html, page(setup.problem.name, setup.machine, outcomes, note, running))

    resumed = sum(len(search.study.records()) for search in searches)
    print(f"{setup.machine.name}: {len(searches)} shapes, preset {setup.preset.name}")
    print(f"study {store.shown_url}: {resumed} trials so far")
    executor = executor_for(setup, options)
    sweep = Sweep(searches, executor, deadline, after_round=lambda: write_page(True))
    try:
        sweep.run()
    finally:
        executor.close()
        write_page(False)
        print(f"report: {html}")
    outcomes = outcomes_of(searches, sweep.decisions)
    print("\n".join(["", *summary(outcomes)]))
    apply_decisions(setup, outcomes)


def executor_for(setup: Setup, options: argparse.Namespace) -> Executor:
    """Who measures. Raises KernelsNotLoaded, DeviceLost, UsageError, ServerFailed."""
    if options.executor == "popcorn":
        return _server_executor(setup, options)
    devices = [options.device] if options.device else device_names()
    config = BenchConfig(
        problem_folder=str(setup.problem.directory),
        submission=submission_text(setup.root, setup.problem.name),
        device=devices[0],
        timeout_s=options.timeout_s,
        compile_case=tuple(setup.config.compile_case.items()),
        compiled=tuple(backend.name for backend in setup.backends if backend.compiles),
    )
    if options.executor == "ray":
        return RayExecutor(config, options.ray_address)
    return LocalExecutor([replace(config, device=device) for device in devices])


def _server_executor(setup: Setup, options: argparse.Namespace) -> PopcornExecutor:
    server = BenchmarkServer(Client(connection_from()), setup.problem.name, setup.machine.name)
    ledger = Ledger(Path(setup.root, "results", "sweep", f"runs-{setup.label}.jsonl"))
    return PopcornExecutor(server, setup.machine, lambda c: submission_text(setup.root, setup.problem.name, c), ledger)


