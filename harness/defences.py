"""The defences between a submission and a time, by name. All are on; tests switch single ones off to show what each is for.

No option and no variable reaches this: only a caller that builds a `Defences` itself can weaken an evaluation.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Self


def _on(means: str) -> bool:
    return field(default=True, metadata={"means": means})


@dataclass(frozen=True)
class Defences:
    """One switch a defence; `meaning` says what each does."""

    # where things live
    separate_process: bool = _on("inputs, reference, verdict and statistics live in a process that holds no submission")
    private_inputs: bool = _on("the judge's inputs are not writable by the worker; what it writes stays with it")
    withheld_files: bool = _on("reference.py, case lists and results are outside the worker's view of the file system")
    clean_environment: bool = _on("no secret, mode, case or seed in the worker's environment, arguments or frames")
    closed_descriptors: bool = _on("the worker inherits one socket and nothing else: no result pipe, no file of the referee")
    no_peeking: bool = _on("the worker cannot see, trace, signal or open the memory and descriptors of other processes")
    no_network: bool = _on("the worker has no network, not even the machine's own loopback")
    read_only_files: bool = _on("the file system is read-only, apart from a scratch folder that is thrown away")
    limits: bool = _on("memory, processes, CPU time, files and kept output are bounded")
    reaped: bool = _on("everything that a worker started ends with it")
    # contents and outputs
    fresh_inputs: bool = _on("inputs are filled with new contents before every scored call, after the last output was taken")
    secret_seed: bool = _on("contents come from a seed that only the referee knows")
    drawn_contents: bool = _on("every sample's contents come from a seed of their own: who finds one out knows no other")
    check_every_call: bool = _on("the output of every scored call is judged")
    exact_type: bool = _on("an output is a plain strided tensor; subclasses and overridden instances are refused")
    copied_at_return: bool = _on("the output's bytes are copied as the call returns, inside the timed region")
    poisoned_memory: bool = _on("memory of outputs that were taken, and memory newly handed out, is filled with NaN")
    strict_verdict: bool = _on("each row is held against fp64 oracles within the noise of honest arithmetic")
    hard_values: bool = _on("large logits, one-hot and constant rows, outliers and ragged lengths are judged too")
    one_code_path: bool = _on("a scored call looks like any other: random call counts, the same frames, no mode to detect")
    quiet_worker: bool = _on("between calls the worker is at rest: processor time spent outside the call is accounted for")
    # time
    synchronized_device: bool = _on("the clock stops when the whole device is idle, whatever queue the work went to")
    occupied_device: bool = _on("until the start event the device is full: nothing that a call queues anywhere can run before")
    stamped_device: bool = _on("time from the device's release to the end event that the two events do not account for counts")
    verified_timer: bool = _on("what the worker's timer is made of is taken before the import and verified after every call")
    referee_clock: bool = _on("a time must not contradict the referee's own wall clock over bursts of calls")
    cold_caches: bool = _on("caches are emptied before every scored call, persisting lines too; clocks are recorded")
    refusal_floor: bool = _on("a time below the bytes of the cheapest format at the datasheet's bandwidth is refused")

    def without(self, *names: str) -> Self:
        """The same with some switched off. Raises ValueError for a name that is no defence."""
        if unknown := set(names) - set(self.names()):
            raise ValueError(f"no defence {', '.join(sorted(unknown))}; there are {', '.join(self.names())}")
        return replace(self, **dict.fromkeys(names, False))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every defence's name."""
        return tuple(entry.name for entry in fields(cls))

    @classmethod
    def meaning(cls, name: str) -> str:
        """What a defence does, in one line."""
        return next(entry.metadata["means"] for entry in fields(cls) if entry.name == name)
