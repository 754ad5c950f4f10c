"""One class per failure: what was wrong, the limit, the remedy, one exit code each (docs/sweep.md)."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `python -m sweep`."""

    OK = 0  # whether or not an entry changed
    USAGE = 2
    NOT_LOADED = 3  # the kernels cannot be bundled, or do not load
    REFUSED = 4  # most settings fail or are wrong
    STORAGE = 6
    OTHER_STUDY = 7
    SERVER = 69
    DEVICE_LOST = 110
    BAD_CASES = 113
    INTERRUPTED = 130


class SweepError(Exception):
    """A failure that ends the command with one clear line and `exit_code`."""

    exit_code = Exit.USAGE


class UsageError(SweepError):
    """An option that cannot be used."""


class SpaceError(SweepError):
    """configs/sweep.yml cannot be read, or leaves nothing to search."""


class TableError(SweepError):
    """configs/dispatch.yml cannot be read or edited."""


class KernelsNotLoaded(SweepError):
    """The kernels cannot be bundled, or the bundle does not load."""

    exit_code = Exit.NOT_LOADED


class MostRefused(SweepError):
    """So many settings fail or are wrong that the fault is not theirs."""

    exit_code = Exit.REFUSED

    def __init__(self, refused: int, tried: int, first: str):
        remedy = "mend that first; --restart then forgets these trials"
        super().__init__(f"{refused} of {tried} settings gave no right result, the first one: {first}; {remedy}")


class CaseRefused(SweepError):
    """A case that the problem's generator does not take."""

    exit_code = Exit.BAD_CASES


class StorageUnreachable(SweepError):
    """The study's storage does not answer."""

    exit_code = Exit.STORAGE

    def __init__(self, url: str, reason: str):
        remedy = "check the address, or leave out --storage to keep the study in a file"
        super().__init__(f"--storage {url}: cannot be used ({reason}); {remedy}")


class OtherStudy(SweepError):
    """The stored study was made under conditions that its times do not carry over from."""

    exit_code = Exit.OTHER_STUDY

    def __init__(self, name: str, differences: list[str]):
        super().__init__(
            f"study {name} was made for something else: {'; '.join(differences)}. Its times say nothing about the present "
            "ones: --restart forgets it and measures anew, --storage URL leaves it alone and begins another"
        )


class DeviceLost(SweepError):
    """No device is left that measures. What was measured is stored."""

    exit_code = Exit.DEVICE_LOST


class ServerFailed(SweepError):
    """The leaderboard server cannot be used, or did not answer as its wire demands. What was measured is stored."""

    exit_code = Exit.SERVER
