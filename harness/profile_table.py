"""A profile as a table: the operators that cost most, what they cost per call, their share."""

from dataclasses import dataclass

from harness.figures import us
from harness.result import Profile, ProfileRow

SHOWN, NAME_WIDTH = 12, 100


@dataclass(frozen=True)
class Row:
    """One operator or kernel; figures per call of custom_kernel."""

    name: str
    own_ns: int
    share: float  # of all own time
    calls: float


@dataclass(frozen=True)
class Table:
    """`where` the time was spent: on the device if any was, else on the host. `below`: a line on what is not shown."""

    where: str
    total_ns: int
    rows: tuple[Row, ...]
    below: tuple[str, ...]


def tabulate(profile: Profile) -> Table:
    """The costliest rows of a profile, dearest first."""
    where = "device" if any(row.device_ns for row in profile.rows) else "host"
    own = {row: row.device_ns if where == "device" else row.host_ns for row in profile.rows}
    ranked = [row for row in sorted(profile.rows, key=own.__getitem__, reverse=True) if own[row]]
    total_ns = sum(own.values())
    rows = tuple(_row(row, own[row], total_ns, profile.calls) for row in ranked[:SHOWN])
    rest_ns = sum(own[row] for row in ranked[SHOWN:])
    below = (f"{len(ranked) - SHOWN} more rows, {us(rest_ns)} us together",) if rest_ns else ()
    return Table(where, total_ns, rows, below)


def _row(row: ProfileRow, own_ns: int, total_ns: int, calls: int) -> Row:
    return Row(shorten(row.name), own_ns, own_ns / total_ns, row.count / calls)


def shorten(name: str, width: int = NAME_WIDTH) -> str:
    """A long kernel name with its middle left out: which template, and which instance, stand at the ends."""
    if len(name) <= width:
        return name
    head = (width - 3) * 2 // 3
    return f"{name[:head]}...{name[head + 3 - width :]}"
