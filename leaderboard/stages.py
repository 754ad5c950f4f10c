"""What a submission's mode asks to be evaluated, and when an evaluation counts as passed."""

from dataclasses import dataclass

from harness.result import Result, State


@dataclass(frozen=True)
class Stage:
    """One evaluation of a job."""

    mode: str
    secret: bool = False  # under a seed that nobody but the evaluating process knows


def stages(mode: str) -> tuple[Stage, ...]:
    """What is evaluated, in order; the first failure is the end. A ranked submission must also pass under a secret seed."""
    if mode != "leaderboard":
        return (Stage(mode),)
    return tuple(Stage(step, secret) for secret in (False, True) for step in ("test", "benchmark", "leaderboard"))


def passes(result: Result) -> bool:
    """Whether a run counts as passed. A profile passes once it is there: wrong kernels are profiled too."""
    if result.mode == "profile":
        return result.state is State.COMPLETE and all(case.profile for case in result.cases)
    return result.ok
