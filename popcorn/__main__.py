"""Command line: python -m popcorn submit|list|show|delete|watch. For machines without the public client."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from popcorn.client import Client
from popcorn.client_errors import BrokenOff, ClientError, Exit, RefusedByRules, ServerUnreachable, UsageFault
from popcorn.directives import parse_directives
from popcorn.follow import follow, is_over, status_of
from popcorn.http_models import MODES, Accepted, SubmissionDetail, to_json
from popcorn.lines import end_line, head_line, list_lines, passed, run_lines, score_lines
from popcorn.rules import check_submission
from popcorn.settings import connection_from
from popcorn.text import printable

EPILOG = """\
POPCORN_API_URL names the server (default http://127.0.0.1:8000), POPCORN_CLI_ID or `cli_id` in ~/.popcorn.yaml who you are.
Exit code: 0 passed, 112 did not pass, 114 timed out, 3 refused, 66 not found, 69 no answer, 75 too many, 77 no valid token.

examples:
  python -m popcorn submit submission.py                  leaderboard and GPU from the file's #!POPCORN lines
  python -m popcorn submit --mode test --gpu H200 --leaderboard mixed-mla submission.py
  python -m popcorn watch 17                              go on watching, from any machine
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(Client(connection_from()), options)
    except ClientError as fault:
        print(f"popcorn: {printable(str(fault))}", file=sys.stderr)
        return fault.exit_code
    except KeyboardInterrupt:
        print("popcorn: interrupted; what was submitted goes on", file=sys.stderr)
        return Exit.INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m popcorn", description="Submit kernels to a popcorn server and see what becomes of them.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="submit|list|show|delete|watch")
    submit = commands.add_parser("submit", help="send a file and follow its runs to the end")
    submit.add_argument("file", type=Path, metavar="FILE")
    submit.add_argument("--leaderboard", metavar="NAME", help="default: the file's directive, or the server's only one")
    submit.add_argument("--gpu", metavar="NAME", help="default: the file's directive, or the leaderboard's only one")
    submit.add_argument("--mode", choices=MODES, default="leaderboard", help="default: leaderboard")
    submit.add_argument("--no-wait", action="store_true", help="print the submission's number and leave")
    _add_output(submit)
    listed = commands.add_parser("list", help="one's own submissions, latest first")
    listed.add_argument("--leaderboard", metavar="NAME")
    listed.add_argument("--limit", type=int, default=20, metavar="N", help="default: 20")
    listed.add_argument("--json", action="store_true", help="as the server sends it")
    shown = commands.add_parser("show", help="one submission as it stands")
    shown.add_argument("--code", action="store_true", help="print the file that was submitted and nothing else")
    deleted = commands.add_parser("delete", help="delete one's own submission for good")
    deleted.add_argument("--force", action="store_true", help="do not ask")
    watched = commands.add_parser("watch", help="follow a submission to its end")
    for command in (shown, deleted, watched):
        command.add_argument("id", type=int, metavar="ID")
    for command in (shown, watched):
        _add_output(command)
    for command, run in ((submit, _submit), (listed, _list), (shown, _show), (deleted, _delete), (watched, _watch)):
        command.set_defaults(run=run)
    return parser


def _add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", type=Path, metavar="FILE", help="write the answer as JSON; an existing file is kept")


# --- commands ----------------------------------------------------------------------------------------------------------


def _submit(client: Client, options: argparse.Namespace) -> int:
    content = _checked(options.file)
    _check_output(options.output)
    leaderboard, gpu = _target(client, options, content)
    if options.mode == "profile":
        return _profile(client.run(leaderboard, gpu, options.mode, options.file.name, content), options.output)
    accepted = _sent(client, leaderboard, gpu, options, content)
    number, queue = accepted.details.id, accepted.runner_queue
    place = f", number {queue.position} in the queue" if queue.position else ""
    print(printable(f"Submission {number} to {leaderboard} on {gpu}, mode {options.mode}{place}"), flush=True)
    if queue.error:
        print(printable(f"note: {queue.error}"))
    return Exit.OK if options.no_wait else _follow(client, number, options.output)


def _sent(client: Client, leaderboard: str, gpu: str, options: argparse.Namespace, content: bytes) -> Accepted:
    try:
        return client.submit(leaderboard, gpu, options.mode, options.file.name, content)
    except ServerUnreachable as fault:
        told = f"{fault.reason}; `python -m popcorn list` tells whether the file arrived"
        raise ServerUnreachable(client.connection.url, told) from None


def _profile(events: Iterator[tuple[str, Any]], output: Path | None) -> int:
    """Print a profile's events; the wire has no number to come back to for them."""
    for name, data in events:
        data = data if isinstance(data, dict) else {"message": data}
        if name == "status":
            _tell(str(data.get("message", "")))
            continue
        _print([printable(str(report)) for report in data.get("reports") or [data.get("detail") or name]])
        if output:
            _write_json(output, data)
        return Exit.OK if name == "result" and data.get("status") in ("succeeded", "success") else Exit.FAILED
    raise BrokenOff


def _list(client: Client, options: argparse.Namespace) -> int:
    found = client.submissions(options.leaderboard, options.limit)
    if options.json:
        _print_json(found)
    elif found:
        _print(list_lines(found))
    else:
        print("Nothing has been submitted yet.")
    return Exit.OK


def _show(client: Client, options: argparse.Namespace) -> int:
    submission = client.submission(options.id)
    if options.code:
        if submission.code is None:
            raise UsageFault("the server does not tell the code of this submission")
        sys.stdout.write(submission.code)
        return Exit.OK
    _check_output(options.output)
    print(head_line(submission))
    for run in submission.runs:
        _print(run_lines(run))
    return _ended(submission, options.output) if is_over(submission) else Exit.OK


def _delete(client: Client, options: argparse.Namespace) -> int:
    if not options.force:
        if not sys.stdin.isatty():
            raise UsageFault("nobody is there to be asked; --force deletes without a question")
        if input(f"Delete submission {options.id} with its runs and its place in the ranking? [y/N] ").strip().lower() != "y":
            return Exit.OK
    client.delete(options.id)
    print(f"Submission {options.id} is deleted.")
    return Exit.OK


def _watch(client: Client, options: argparse.Namespace) -> int:
    _check_output(options.output)
    return _follow(client, options.id, options.output)


# --- following -----------------------------------------------------------------------------------------------------------


def _follow(client: Client, number: int, output: Path | None) -> int:
    """Print what becomes of a submission as it happens; its number is on the screen should this process end."""
    printed, submission = 0, None
    try:
        for submission in follow(client, number, _tell):
            for run in submission.runs[printed:]:
                _print(run_lines(run))
            printed = len(submission.runs)
    except KeyboardInterrupt:
        raise _Left(number) from None
    assert submission is not None  # `follow` yields at least once
    return _ended(submission, output)


class _Left(ClientError):
    """Ctrl-C while the server works on."""

    exit_code = Exit.INTERRUPTED

    def __init__(self, number: int):
        super().__init__(f"submission {number} goes on without you; `python -m popcorn watch {number}` comes back to it")


def _ended(submission: SubmissionDetail, output: Path | None) -> int:
    _print([*score_lines(submission), end_line(submission)])
    if output:
        _write_json(output, to_json(submission))
    if passed(submission):
        return Exit.OK
    return Exit.TIMED_OUT if status_of(submission) == "timed_out" else Exit.FAILED


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def _print(lines: Iterator[str] | list[str]) -> None:
    for line in lines:
        print(line, flush=True)


def _print_json(found: Any) -> None:
    print(json.dumps(to_json(found), indent=1, ensure_ascii=False))


# --- files and names -----------------------------------------------------------------------------------------------------


def _checked(path: Path) -> bytes:
    """The file's bytes. Raises RefusedByRules for what every server refuses, before anything is sent."""
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise UsageFault(f"{path}: cannot be read: {fault.strerror}") from None
    if violations := check_submission(content, path.name):
        raise RefusedByRules(f"{path}: {'; '.join(violation.message for violation in violations)}")
    return content


def _target(client: Client, options: argparse.Namespace, content: bytes) -> tuple[str, str]:
    """Leaderboard and GPU: as the options say, else the file, else the only one there is."""
    said = parse_directives(content.decode(), options.file.name)
    leaderboard = options.leaderboard or said.leaderboard or _only(client.leaderboards(), "leaderboard")
    return leaderboard, options.gpu or said.gpu or _only(client.gpus(leaderboard), "gpu")


def _only(found: list[str], option: str) -> str:
    if not found:
        raise UsageFault(f"the server has no {option} yet; --{option} names one")
    if len(found) != 1:
        raise UsageFault(f"--{option} is needed; the server has {', '.join(found)}")
    return found[0]


def _check_output(path: Path | None) -> None:
    if path and path.exists():
        raise UsageFault(f"--output {path} exists; name a new file")


def _write_json(path: Path, data: Any) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    except OSError as fault:
        raise UsageFault(f"--output {path}: cannot be written: {fault.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
