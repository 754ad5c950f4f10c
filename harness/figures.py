"""Figures as text: the same digits everywhere."""


def us(ns: float) -> str:
    """Nanoseconds as microseconds with four significant digits."""
    value = ns / 1e3
    whole_digits = len(str(int(float(f"{value:.3e}"))))  # of the value as it will be rounded
    return f"{value:.{max(4 - whole_digits, 0)}f}"


def percent(floor_ns: float | None, time_ns: float) -> str:
    """A floor as a share of a time: 100 % is as fast as the floor."""
    return "-" if floor_ns is None else f"{floor_ns / time_ns:.0%}"


def rate(nbytes: int | None, time_ns: float) -> str:
    """Bytes in a time as GB/s; two digits below 10."""
    return "-" if nbytes is None else f"{nbytes / time_ns:.2g}" if nbytes < 10 * time_ns else f"{nbytes / time_ns:.0f}"
