"""What a Bench needs to know; plain data, so that it travels to other processes and machines."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BenchConfig:
    """One device of a sweep. `submission` is its text, `device` cpu, cuda or cuda:N.

    `compile_case`: case keys that make a case small; `compiled`: backends that compile every new setting; `compilers`:
    processes that compile those ahead, 0: as many as there are cores to spare.
    """

    problem_folder: str
    submission: str
    device: str
    timeout_s: float = 300.0
    compile_case: tuple[tuple[str, int], ...] = ()
    compiled: tuple[str, ...] = ()
    compilers: int = 0
