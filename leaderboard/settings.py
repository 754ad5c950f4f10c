"""What an operator decides when the server starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from popcorn.http_models import MODES

# Submissions that a user may make on one leaderboard in any hour, by mode.
DEFAULT_LIMITS: Mapping[str, int] = MappingProxyType(dict[str, int].fromkeys(MODES, 60))


@dataclass(frozen=True)
class Settings:
    """The server's rules. The defaults suit one machine and the people who trust each other on it."""

    open_registration: bool = True  # whoever can connect may submit; False: only holders of a token made here
    limits_per_hour: Mapping[str, int] = field(default_factory=lambda: DEFAULT_LIMITS)
    max_unfinished: int = 50  # jobs of one user that wait or run
    policy: str = "robust"  # harness.policies
    budget_s: float | None = None  # robust: wall time to sample one case; None: the policy's own
    new_users_per_hour: int = 200  # on an open server
    lease_s: float = 60.0  # after so long a silence of its runner a job goes back to the queue
    problem_root: Path = Path()  # administrators make leaderboards of folders below it
    body_timeout_s: float = 30.0  # for a request's head to arrive, and again for its body
    max_waiting_clients: int = 8  # event connections of one user
