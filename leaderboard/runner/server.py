"""The server as a runner sees it: a few JSON calls, repeated while the server is away."""

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import httpx

from leaderboard.errors import BadRequest, Conflict, LeaderboardError, NotFound, ServerAway

TIMEOUT_S = 30.0
FIRST_WAIT_S = 0.2
KINDS: Mapping[int, type[LeaderboardError]] = MappingProxyType(
    {400: BadRequest, 413: BadRequest, 422: BadRequest, 404: NotFound, 409: Conflict}
)
LONGEST_WAIT_S = 5.0  # well below a lease: a server that comes back is told in time


class Server:
    """Calls to one server with one token."""

    def __init__(self, url: str, token: str, sleep: Callable[[float], None] = time.sleep):
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT_S)
        self._sleep = sleep

    def call(self, method: str, path: str, body: Any = None, patience_s: float = 0.0) -> Any:
        """The answer's JSON; None where there is none. A server that is away is asked again for `patience_s`.

        Raises ServerAway, Conflict (a lease is lost), NotFound, BadRequest (the server will not take it, however often it is
        sent), LeaderboardError with the server's reason.
        """
        wait_s, until = FIRST_WAIT_S, time.monotonic() + patience_s
        while True:
            try:
                return self._call(method, path, body)
            except ServerAway:
                if time.monotonic() >= until:
                    raise
            self._sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _call(self, method: str, path: str, body: Any) -> Any:
        try:
            answer = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ServerAway(f"{self._client.base_url}{path}: {error}") from None
        except ValueError as error:  # no JSON: a NaN, half a surrogate pair
            raise BadRequest(f"{path}: {error}") from None
        if answer.status_code >= 500:
            raise ServerAway(f"{self._client.base_url}{path}: {answer.status_code} {answer.text[:200]}")
        if answer.is_success:
            return answer.json() if answer.content else None
        raise KINDS.get(answer.status_code, LeaderboardError)(_reason(answer))

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.text[:200]}"
