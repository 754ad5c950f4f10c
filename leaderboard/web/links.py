"""Addresses of the pages; every part is quoted, so that no name can lead elsewhere."""

from urllib.parse import quote, urlencode


def board(name: str, gpu: str | None = None) -> str:
    """A leaderboard, of one device if `gpu` names it."""
    return _path("board", name, *([gpu] if gpu else []))


def submission(submission_id: int) -> str:
    """A submission."""
    return _path("submission", submission_id)


def user(name: str) -> str:
    """What a user has submitted."""
    return _path("users", name)


def recorded(run_id: int) -> str:
    """A run of `eval.py --record`."""
    return _path("history", run_id)


def diff(old_id: int, new_id: int) -> str:
    """What changed between the code of two submissions."""
    return _path("diff", old_id, new_id)


def with_query(path: str, **query: str | int | None) -> str:
    """`path` with the parameters that are given."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _path(*parts: str | int) -> str:
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)
