"""Parameters that several calls take."""

from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import Field

from leaderboard.errors import NotFound

LARGEST_NUMBER = 2**31 - 1  # what the store's keys hold

Number = Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]
RunnerNumber = Annotated[int, Field(ge=1, le=LARGEST_NUMBER)]
Limit = Annotated[int, Query(ge=1, le=1000)]


async def check_address(request: Request) -> None:
    """Raise NotFound for a NUL: no name has one, and not every database can be asked for it."""
    if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:
        raise NotFound("nothing has a NUL in its name")
