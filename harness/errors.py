"""One class per failure. The message says what was wrong, the limit and the remedy; users see it without a traceback."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line (docs/policies.md)."""

    OK = 0
    USAGE = 2
    NOT_LOADED = 3
    REGRESSION = 4
    REFUSED = 5
    DEVICE_ERROR = 110
    VERDICT_FAILED = 112
    BAD_CASES = 113
    TIMEOUT = 114
    INTERRUPTED = 130


class HarnessError(Exception):
    """A failure that ends the command with one clear line and `exit_code`."""

    exit_code = Exit.USAGE


class UsageError(HarnessError):
    """An option, a file or a mode that cannot be used."""


class PolicyRefused(HarnessError):
    """A policy whose rules this machine cannot follow."""


class RecordError(HarnessError):
    """A Result file that does not follow docs/result-schema.md."""

    def __init__(self, where: str, problem: str):
        super().__init__(f"{where}: {problem}; docs/result-schema.md describes every key")


class HistoryError(HarnessError):
    """A file of recorded runs that cannot be used."""

    def __init__(self, path: str, problem: str, remedy: str):
        super().__init__(f"{path}: {problem}; {remedy}")


class CannotCompare(HarnessError):
    """Two measurements that cannot be compared."""


class DeviceUnavailable(HarnessError):
    """The device asked for is not in this machine."""

    exit_code = Exit.DEVICE_ERROR


class RefereeOutOfMemory(HarnessError):
    """Judging an output needs more memory than is left."""

    exit_code = Exit.DEVICE_ERROR

    def __init__(self, error: BaseException):
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        super().__init__(f"no memory left to judge an output: {first_line}; free some, or evaluate smaller cases")


class SubmissionNotLoaded(HarnessError):
    """The submission could not be imported: missing, an exception, a crash, no custom_kernel, a backend it lacks."""

    exit_code = Exit.NOT_LOADED

    def __init__(self, message: str, detail: str = ""):
        super().__init__(message)
        self.detail = detail


class CodecError(Exception):
    """A value that cannot travel between referee and worker; `where` is the path inside it."""

    def __init__(self, where: str, problem: str):
        super().__init__(f"{where} {problem}" if where else problem)


class CallFailed(Exception):
    """Base of everything that a call into the submission can end in, other than an output."""

    def __init__(self, message: str, detail: str = ""):
        super().__init__(message)
        self.detail = detail


class SubmissionRaised(CallFailed):
    """custom_kernel raised an exception; `detail` is its traceback in the author's own files."""


class BadOutput(CallFailed):
    """custom_kernel returned something that is not made of tensors and plain values."""


class DeviceFault(CallFailed):
    """The device reported an error; its context is lost, the worker must be replaced."""


class OutOfMemory(CallFailed):
    """The host's or the device's memory did not suffice."""


class WorkerDied(CallFailed):
    """The worker's process ended: a signal, os._exit, sys.exit."""


class WorkerTimedOut(CallFailed):
    """No answer within the time limit; the worker's whole process group has been killed."""


class ClockTampered(CallFailed):
    """The worker's clock was changed, or reports what the referee's own accounts contradict; the worker has been killed."""


class ProtocolViolated(CallFailed):
    """A frame that no honest worker sends; the worker has been killed."""
