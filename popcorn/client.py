"""The calls of a popcorn server that somebody who submits needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from popcorn.client_errors import NotAPopcornServer
from popcorn.connection import Connection
from popcorn.http_models import Accepted, SubmissionDetail, SubmissionSummary, WireError, read

Record = TypeVar("Record")


@dataclass(frozen=True)
class Client:
    """A server's calls. Every one raises the ClientError that fits what went wrong."""

    connection: Connection

    def leaderboards(self) -> list[str]:
        """The names of the leaderboards."""
        boards = self._list(self.connection.get("leaderboards"), "leaderboards")
        return [str(board["name"]) for board in boards if isinstance(board, dict) and "name" in board]

    def gpus(self, leaderboard: str) -> list[str]:
        """The GPUs that a leaderboard runs on."""
        return [str(gpu) for gpu in self._list(self.connection.get("gpus", leaderboard), "gpus")]

    def submit(self, leaderboard: str, gpu: str, mode: str, file_name: str, content: bytes) -> Accepted:
        """Send a file; from the answer on the server keeps it under `details.id`."""
        path = ("submission", leaderboard.lower(), gpu, mode)
        return self._read(Accepted, self.connection.upload(*path, file_name=file_name, content=content), "submission")

    def run(self, leaderboard: str, gpu: str, mode: str, file_name: str, content: bytes) -> Iterator[tuple[str, Any]]:
        """Send a file and listen to its run: events (`status`, `result`, `error`) with their data."""
        path = (leaderboard.lower(), gpu, mode)
        return self.connection.upload_and_listen(*path, file_name=file_name, content=content)

    def submissions(self, leaderboard: str | None = None, limit: int | None = None) -> list[SubmissionSummary]:
        """One's own submissions, latest first."""
        answer = self.connection.get("user", "submissions", leaderboard=leaderboard, limit=limit)
        return [self._read(SubmissionSummary, item, "submissions") for item in self._list(answer, "user/submissions")]

    def submission(self, submission_id: int) -> SubmissionDetail:
        """One submission with its runs, its job and its code."""
        return self._read(SubmissionDetail, self.connection.get("user", "submissions", submission_id), "submission")

    def delete(self, submission_id: int) -> None:
        """Delete one's own submission, its runs and its place in the ranking."""
        self.connection.delete("user", "submissions", submission_id)

    def events(self, submission_id: int) -> Iterator[tuple[str, Any]]:
        """What happens to a submission from now on, to its end. Not every server has it: NotFound then."""
        return self.connection.listen("user", "submissions", submission_id, "events")

    def _list(self, answer: Any, call: str) -> list[Any]:
        if not isinstance(answer, list):
            raise NotAPopcornServer(self.connection.url, f"/{call} answers no list")
        return answer

    def _read(self, cls: type[Record], answer: Any, where: str) -> Record:
        try:
            return read(cls, answer, where)
        except WireError as fault:
            raise NotAPopcornServer(self.connection.url, str(fault)) from None
