"""The commands' options. What carries a command out is imported when it runs: a runner's machine needs no database."""

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEFAULT_DATABASE = "sqlite:///results/history.sqlite"
EPILOG = """examples:
  a leaderboard of one's own, on this machine
    python -m leaderboard serve
  one for a team, and a runner on a GPU machine
    python -m leaderboard tokens create lab-7 --role runner
    python -m leaderboard serve --host 0.0.0.0 --runner none
    python -m leaderboard runner --server http://SERVER:8000 --token TOKEN
  who may submit to it
    python -m leaderboard tokens create ada

docs/leaderboard.md describes roles, calls, storage and what survives which crash.
"""


def parser() -> argparse.ArgumentParser:
    """The commands and their options; each sets `run`, a function of the options that returns the exit code."""
    made = argparse.ArgumentParser(
        prog="python -m leaderboard",
        description="A popcorn leaderboard of one's own.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    _serve(commands.add_parser("serve", help="run the server, its pages and a runner"))
    _runner(commands.add_parser("runner", help="evaluate for a server that is somewhere else"))
    _tokens(commands.add_parser("tokens", help="make, list and revoke tokens"))
    _boards(commands.add_parser("boards", help="make, list and delete leaderboards"))
    _hacked(commands.add_parser("hacked", help="take a submission out of the ranking, with a reason"))
    _record(commands.add_parser("record", help="keep the Result files of eval.py --json in the store"))
    return made


def _serve(parser: argparse.ArgumentParser) -> None:
    _database(parser)
    _where(parser.add_argument_group("where"))
    _rules(parser.add_argument_group("rules"))
    _embedded(parser.add_argument_group("the runner beside the server"))
    parser.set_defaults(run=_later("leaderboard.serve", "serve"))


def _where(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--host", default="127.0.0.1", help="address to listen on; default: %(default)s, for this machine alone")
    add("--port", type=int, default=8000, help="0 takes a free one; default: %(default)s")
    problems = "problem folders or competition files; default: all of this project"
    add("--problems", type=Path, nargs="+", metavar="DIR", help=problems)
    root = "administrators may make leaderboards of folders below it; default: this project"
    add("--problem-root", type=Path, default=ROOT, metavar="DIR", help=root)


def _rules(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    who = "who may submit: whoever connects, or holders of a token made here; default: open for this machine alone, else closed"
    add("--registration", choices=("open", "closed"), help=who)
    add("--limit", action="append", default=[], metavar="MODE=N", help="submissions an hour, leaderboard and user; default: 60")
    new = "an open server takes so many; default: %(default)s"
    add("--new-users-per-hour", type=int, default=200, metavar="N", help=new)
    add("--max-unfinished", type=int, default=50, metavar="N", help="waiting and running ones of a user; default: %(default)s")
    add("--policy", choices=("robust", "official"), default="robust", help="rules of measurement; default: %(default)s")
    add("--budget-s", type=float, metavar="S", help="robust: wall time to sample one case")
    add("--lease-s", type=float, default=60.0, metavar="S", help="a runner silent for so long is lost; default: %(default)s")


def _embedded(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--runner", choices=("embedded", "none"), default="embedded", help="default: %(default)s")
    _executor(group)


def _executor(group: argparse._ActionsContainer) -> None:
    add = group.add_argument
    add("--executor", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster; default: %(default)s")
    add("--slots", type=int, default=1, metavar="N", help="ray: evaluations at a time; default: %(default)s")
    add("--gpu", metavar="NAME", help="name under which the device is offered; default: taken from the device")


def _runner(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--server", required=True, metavar="URL", help="the server's address")
    token = "a runner's token; - reads it from stdin and ends when stdin does; default: $KERNELPROOF_TOKEN"
    add("--token", metavar="T", help=token)
    add("--name", metavar="NAME", help="name that the queue shows; default: this machine's")
    _executor(parser)
    parser.set_defaults(run=_later("leaderboard.runner.command", "run"))


def _tokens(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a token and print it, once")
    _database(create)
    create.add_argument("name", metavar="NAME", help="whose it is")
    create.add_argument("--role", choices=("user", "runner", "admin"), default="user", help="default: %(default)s")
    create.add_argument("--days", type=float, metavar="N", help="it expires after so many; default: never")
    create.set_defaults(run=_later("leaderboard.administer", "create_token"))
    listed = actions.add_parser("list", help="who has tokens, without the tokens")
    _database(listed)
    listed.set_defaults(run=_later("leaderboard.administer", "list_tokens"))
    revoke = actions.add_parser("revoke", help="end every token of somebody")
    _database(revoke)
    revoke.add_argument("name", metavar="NAME")
    revoke.set_defaults(run=_later("leaderboard.administer", "revoke_tokens"))


def _boards(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make leaderboards of problem folders or competition files, or update them")
    _database(create)
    create.add_argument("paths", type=Path, nargs="+", metavar="DIR")
    create.set_defaults(run=_later("leaderboard.administer", "create_boards"))
    listed = actions.add_parser("list", help="every leaderboard")
    _database(listed)
    listed.set_defaults(run=_later("leaderboard.administer", "list_boards"))
    delete = actions.add_parser("delete", help="delete one")
    _database(delete)
    delete.add_argument("name", metavar="NAME")
    delete.add_argument("--force", action="store_true", help="its submissions too")
    delete.set_defaults(run=_later("leaderboard.administer", "delete_board"))


def _hacked(parser: argparse.ArgumentParser) -> None:
    _database(parser)
    parser.add_argument("submission", type=int, metavar="SUBMISSION")
    parser.add_argument("reason", metavar="REASON", help="it is shown to everybody")
    parser.set_defaults(run=_later("leaderboard.administer", "mark_hacked"))


def _record(parser: argparse.ArgumentParser) -> None:
    _database(parser)
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULT.json", help="what eval.py --json has written")
    parser.set_defaults(run=_later("leaderboard.administer", "record_results"))


def _database(parser: argparse.ArgumentParser) -> None:
    url = f"SQLite file or PostgreSQL; default: {DEFAULT_DATABASE}, where eval.py --record keeps its runs"
    parser.add_argument("--database", default=DEFAULT_DATABASE, metavar="URL", help=url)


def _later(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        return getattr(importlib.import_module(module), name)(options)

    return run
