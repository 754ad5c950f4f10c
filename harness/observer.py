"""What an evaluation tells while it runs. Renderers and writers are observers."""

from dataclasses import dataclass
from typing import Protocol

from harness.result import Result
from popcorn.cases import Case


@dataclass(frozen=True)
class Progress:
    """Where an evaluation is. `phase` is loading, generating, checking, warming up or sampling."""

    index: int  # of the case, from 0
    total: int
    case: Case
    phase: str
    samples_ns: tuple[int, ...] = ()
    left_s: float | None = None  # that this case will be sampled, at most


class Observer(Protocol):
    """Told of every step; the Result is complete up to that step."""

    def started(self, result: Result) -> None:
        """The evaluation begins: no case has run."""
        ...

    def progress(self, progress: Progress) -> None:
        """Something has happened inside a case; called often."""
        ...

    def case_done(self, result: Result) -> None:
        """The last of `result.cases` is final."""
        ...

    def finished(self, result: Result) -> None:
        """The evaluation is complete or interrupted."""
        ...


class Observers:
    """Several observers as one."""

    def __init__(self, *observers: Observer):
        self._observers = observers

    def started(self, result: Result) -> None:
        for observer in self._observers:
            observer.started(result)

    def progress(self, progress: Progress) -> None:
        for observer in self._observers:
            observer.progress(progress)

    def case_done(self, result: Result) -> None:
        for observer in self._observers:
            observer.case_done(result)

    def finished(self, result: Result) -> None:
        for observer in self._observers:
            observer.finished(result)
