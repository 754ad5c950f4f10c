"""Parameters that several calls take."""

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

LARGEST_NUMBER = 2**31 - 1  # what the store's keys hold

Number = Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]
RunnerNumber = Annotated[int, Field(ge=1, le=LARGEST_NUMBER)]
Limit = Annotated[int, Query(ge=1, le=1000)]
