"""One class per failure: the message says what was wrong, the limit and the remedy. `status_code` is what HTTP answers."""


class LeaderboardError(Exception):
    """A failure that ends a request, or a command, with one clear line."""

    status_code = 400

    @property
    def told(self) -> str:
        """What clients of the server are told."""
        return str(self)


class BadRequest(LeaderboardError):
    """A request that says something impossible: an unknown mode, a GPU that the leaderboard has not, a refused file."""


class NotLoggedIn(LeaderboardError):
    """A request without a token, or with one that is unknown, revoked or expired."""

    status_code = 401


class Forbidden(LeaderboardError):
    """A request that the caller's role does not allow."""

    status_code = 403


class NotFound(LeaderboardError):
    """A thing that does not exist, or not for the caller: the two are not told apart."""

    status_code = 404


class TooSlow(LeaderboardError):
    """A request whose body takes too long to arrive."""

    status_code = 408


class Conflict(LeaderboardError):
    """A request that the present state does not allow: a name taken, a lease lost."""

    status_code = 409


class TooLarge(LeaderboardError):
    """A request whose body is larger than any honest one."""

    status_code = 413


class LimitReached(LeaderboardError):
    """Too many submissions; `retry_after_s` says when the next one will be taken."""

    status_code = 429

    def __init__(self, message: str, retry_after_s: int):
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Closed(LeaderboardError):
    """The server takes no submissions now, or the leaderboard's deadline has passed."""

    status_code = 403


class StoreError(LeaderboardError):
    """A database that cannot be used. Where it lies is for the operator to know."""

    status_code = 503

    @property
    def told(self) -> str:
        return "the database does not answer now; try again later, the server's log says why"


class ServerAway(LeaderboardError):
    """The server does not answer a runner."""

    status_code = 503
