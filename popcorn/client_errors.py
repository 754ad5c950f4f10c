"""What can go wrong between the command line and a server: one class per failure, one line, one exit code.

The codes for trouble on the way are those of BSD's sysexits.h; those for what became of the submission are eval.py's.
"""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `python -m popcorn`."""

    OK = 0  # and the submission passed
    USAGE = 2
    REFUSED = 3  # by the rules or by the server, before anything ran
    NOT_FOUND = 66
    UNREACHABLE = 69
    SERVER_FAULT = 70
    RATE_LIMITED = 75
    PROTOCOL = 76
    NOT_AUTHORISED = 77
    FAILED = 112  # it ran and did not pass
    TIMED_OUT = 114
    INTERRUPTED = 130


class ClientError(Exception):
    """A failure that ends the command with one line and `exit_code`."""

    exit_code = Exit.USAGE


class UsageFault(ClientError):
    """An option, a file or a setting that cannot be used."""


class RefusedByRules(ClientError):
    """A file that the server would refuse; nothing was sent."""

    exit_code = Exit.REFUSED


class ServerUnreachable(ClientError):
    """No answer came, or it broke off."""

    exit_code = Exit.UNREACHABLE

    def __init__(self, url: str, reason: str):
        super().__init__(f"no answer from {url} ({reason}); is the server running, and is POPCORN_API_URL its address?")
        self.reason = reason


class BrokenOff(ClientError):
    """A run's events ended before its result."""

    exit_code = Exit.UNREACHABLE

    def __init__(self) -> None:
        super().__init__("the server hung up before the result; `python -m popcorn list` tells whether it is still at it")


class NotAPopcornServer(ClientError):
    """Something answered, but not as the wire demands."""

    exit_code = Exit.PROTOCOL

    def __init__(self, url: str, problem: str):
        super().__init__(f"{url} does not answer as a popcorn server: {problem}")


class Answered(ClientError):
    """The server answered with an error; `status` is HTTP's."""

    remedy = ""

    def __init__(self, url: str, status: int, detail: str):
        super().__init__(f"{url} answered {status}: {detail}{self.remedy}")
        self.status, self.detail = status, detail


class RefusedByServer(Answered):
    """The call as such is wrong: a file, a name, a mode."""

    exit_code = Exit.REFUSED


class NotFound(Answered):
    """There is no such leaderboard or submission, or it is somebody else's."""

    exit_code = Exit.NOT_FOUND


class NotAuthorised(Answered):
    """The token is missing, unknown, or not good enough."""

    exit_code = Exit.NOT_AUTHORISED
    remedy = "; put your token into POPCORN_CLI_ID, or as `cli_id: TOKEN` into ~/.popcorn.yaml"


class RateLimited(Answered):
    """Too many calls; the server's text says when to come back."""

    exit_code = Exit.RATE_LIMITED


class ServerFault(Answered):
    """The server's own mistake."""

    exit_code = Exit.SERVER_FAULT
