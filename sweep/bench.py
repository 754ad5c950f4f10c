"""One device: variants of a case in turn, in a worker of the harness, judged before they are timed.

The submission is this repository's own, so part of what the harness does against cheats is left out: the inputs of a case
stay, and compilers keep their caches. Cold caches, hidden launch latency and verdicts are the harness's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from harness.clock import WallClock
from harness.containment import ALL_ON
from harness.contestant import Contestant
from harness.devices import describe_device, select_device
from harness.errors import CallFailed, HarnessError, SubmissionNotLoaded, SubmissionRaised
from harness.inputs import InputBuffers
from harness.policies import AfterCalls, robust
from harness.problem import InputError, Problem, load_problem
from harness.referee import Request, Workers
from harness.session import Session
from popcorn.cases import Case
from sweep.bench_config import BenchConfig
from sweep.errors import CaseRefused, DeviceLost, KernelsNotLoaded
from sweep.submission import with_choice
from sweep.variant import Ask, Machine, Outcome, Variant, variant_from

WARM_UP = AfterCalls(calls=2, max_wall_ns=1_000_000_000)
# With read-only files every worker would compile everything again; the accounts are there for who works ahead.
NOT_NEEDED = ("read_only_files", "quiet_worker", "referee_clock", "fresh_inputs")
KEPT_SHARE = 0.2  # of the device's memory, for inputs of earlier cases
MAX_COMPILERS = 12
UNAVAILABLE = "BackendError:"
SMALL = "small"  # the name of inputs to compile for


class Inputs:
    """A case's data, and the buffers in which workers see it."""

    def __init__(self, problem: Problem, case: Case, name: str, buffers: InputBuffers):
        self.data, self.name, self.buffers = problem.generate_input(case), name, buffers
        self.lent_to: Session | None = None

    def naming(self, variant: Variant | None) -> Callable[[], Any]:
        """What generates the data with the variant's name in it."""
        return lambda: with_choice(self.data, variant)

    def close(self) -> None:
        """Take the buffers back from the worker, and free them."""
        if self.lent_to is not None and self.lent_to.alive:
            with contextlib.suppress(CallFailed):
                self.lent_to.unmap(self.name)
        self.buffers.close()


class Entrant(Contestant):
    """One variant of an Ask, in the worker that it shares with the others."""

    def __init__(self, bench: Bench, inputs: Inputs, variant: Variant | None):
        self._bench, self.inputs, self.variant = bench, inputs, variant
        self.message, self.status = "", "ok"
        self._earlier: list[int] = []  # samples from workers that have ended
        self._join()

    def _join(self) -> None:
        """Enter the present worker."""
        self._worker = self._bench.workers.session()
        super().__init__(self._bench.problem, self._bench.policy, self._worker, self._bench.clock)

    @property
    def competes(self) -> bool:
        return self.status == "ok"

    def show(self) -> None:
        """From now on calls are served by this variant. Buffers are mapped once for all variants of a worker."""
        if self.inputs.lent_to is self._worker:
            self._lent.add(self.inputs.name)
        buffers = self.inputs.buffers
        self.lend(self.inputs.name, buffers, buffers.prepare(self.inputs.naming(self.variant)))
        self.inputs.lent_to = self._worker
        buffers.pour()
        self.see_new_contents()

    def begin(self, judged: bool) -> None:
        """The first call, its verdict unless it is known, and warm-up."""
        self.show()
        self.call_first()
        if not judged:
            self.check(self.inputs.data, strict=True)
            if self.verdict and not self.verdict.ok:
                official, strict = self.verdict.official, self.verdict.strict
                self.status, self.message = "wrong", strict.message if official.ok and strict else official.message
                return
        self.warm_up(WARM_UP)
        self.start_sampling()

    def sample(self) -> None:
        """One sample. If another variant has ended the worker, it begins anew in the next one."""
        if not self._worker.alive:
            self._earlier += self.sampling.samples_ns if self.sampling else []
            self._join()
            self._worker.grant_time()
            self.begin(judged=True)
        self.show()
        self.time_one()

    def fail(self, error: CallFailed) -> None:
        """No more of this variant."""
        text = str(error)
        self.status = "unavailable" if text.startswith(UNAVAILABLE) else "failed"
        self.message = text.removeprefix(UNAVAILABLE).strip()

    def outcome(self) -> Outcome:
        """What came of it."""
        said = self.first.description if self.first else None
        described = None
        if isinstance(said, dict) and isinstance(said.get("backend"), str) and isinstance(said.get("params"), dict):
            described = variant_from(said)
        samples = (*self._earlier, *self.sampling.samples_ns) if self.sampling and self.competes else ()
        return Outcome(samples, self.status, self.message, described)


class Bench:
    """Measures on one device. Raises KernelsNotLoaded at the first Ask if the submission cannot be imported."""

    def __init__(self, config: BenchConfig):
        self._config = config
        self.device = select_device(config.device)
        about = describe_device(self.device)
        self.machine = Machine(about.name, about.arch, about.kind, about.driver, about.torch)
        self._memory_bytes = about.memory_bytes or 0
        self.problem, self.clock = load_problem(Path(config.problem_folder)), WallClock()
        self.policy = replace(robust("benchmark", about), fresh="never", judged="ends", bursts=False, pool=1)
        self._scratch = tempfile.TemporaryDirectory(prefix="kernelproof-sweep-")
        submission = Path(self._scratch.name, "submission.py")
        submission.write_text(config.submission, encoding="utf-8")
        self._request = Request(
            problem=self.problem,
            submission=submission,
            mode="benchmark",
            cases=(),
            cases_from="sweep",
            policy=self.policy,
            device=self.device,
            timeout_s=config.timeout_s,
            defences=ALL_ON.without(*NOT_NEEDED),
        )
        self.workers = self._new_workers("timing")
        self._compilers: list[Workers] = []
        self._prepared: set[tuple[str, str]] = set()
        self._inputs: dict[str, Inputs] = {}
        self._numbers = itertools.count()
        self._judged: set[tuple[str, str]] = set()
        self._loaded = False

    def about(self) -> Machine:
        """The machine, for who cannot read attributes of another process."""
        return self.machine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, free the inputs."""
        for inputs in self._inputs.values():
            inputs.close()
        for workers in (self.workers, *self._compilers):
            workers.close()
        self._scratch.cleanup()

    def measure(self, ask: Ask) -> list[Outcome]:
        """An Outcome for each variant of an Ask. Raises KernelsNotLoaded, CaseRefused, DeviceLost."""
        try:
            return self._measure(ask)
        except SubmissionNotLoaded as error:
            if self._loaded:
                raise DeviceLost(f"{self.machine.name}: a new worker cannot be started: {error}") from None
            raise KernelsNotLoaded(f"the kernels do not load: {error}") from None
        except InputError as error:
            raise CaseRefused(str(error)) from None
        except HarnessError as error:
            raise DeviceLost(f"{self.machine.name}: {error}") from None

    def _measure(self, ask: Ask) -> list[Outcome]:
        session = self.workers.session()
        self._loaded = True
        session.grant_time()
        inputs = self._inputs_of(ask.target.case)
        entrants = []
        for variant in ask.variants:
            entrants.append(entrant := Entrant(self, inputs, variant))
            known = (ask.target.case.text, variant.key if variant else "")
            with self._failing(entrant):
                entrant.begin(judged=known in self._judged)
            if entrant.competes:
                self._judged.add(known)
        for turn in range(ask.samples):
            for entrant in (entrants[place] for place in ask.order(turn)):
                if entrant.competes:
                    with self._failing(entrant):
                        entrant.sample()
        return [entrant.outcome() for entrant in entrants]

    @contextlib.contextmanager
    def _failing(self, entrant: Entrant) -> Iterator[None]:
        try:
            yield
        except CallFailed as error:
            entrant.fail(error)
            if not isinstance(error, SubmissionRaised):
                self.workers.close()  # its memory or its device can no longer be trusted

    def _inputs_of(self, case: Case) -> Inputs:
        """The inputs of a case, kept from one Ask to the next as long as there is room."""
        if case.text not in self._inputs:
            while sum(2 * kept.buffers.nbytes for kept in self._inputs.values()) > KEPT_SHARE * self._memory_bytes:
                self._inputs.pop(next(iter(self._inputs))).close()
            name = f"inputs{next(self._numbers)}"
            self._inputs[case.text] = Inputs(self.problem, case, name, self.workers.session().new_buffers())
        return self._inputs[case.text]

    # ---- compiling ahead

    def prepare(self, asks: Sequence[Ask]) -> None:
        """Let every variant that compiles be called once on a small case, on all cores, so that compilers' caches are filled.

        What fails here will fail again where it is recorded.
        """
        jobs = {}
        for ask in asks:
            case = small_case(ask.target.case, dict(self._config.compile_case))
            compiled = [variant for variant in ask.variants if variant and variant.backend in self._config.compiled]
            jobs |= {key: (case, v) for v in compiled if (key := (case.text, v.key)) not in self._prepared}
        self._prepared |= jobs.keys()
        count = self._config.compilers or min(MAX_COMPILERS, len(os.sched_getaffinity(0)) - 2)
        if count < 2 or len(jobs) < 2:
            return
        work = list(jobs.values())
        self._compilers += [self._new_workers(f"compile{n}") for n in range(len(self._compilers), min(count, len(work)))]
        with ThreadPoolExecutor(len(self._compilers)) as pool:
            shares = [work[n :: len(self._compilers)] for n in range(len(self._compilers))]
            list(pool.map(self._compile, self._compilers, shares))

    def _compile(self, workers: Workers, share: Sequence[tuple[Case, Variant]]) -> None:
        for case, variant in share:
            with contextlib.suppress(HarnessError, CallFailed):
                session = workers.session()
                session.grant_time()
                inputs = Inputs(self.problem, case, SMALL, session.new_buffers())
                try:
                    inputs.buffers.fill(inputs.naming(variant))
                    session.map(SMALL, inputs.buffers)
                    inputs.lent_to = session
                    session.call(SMALL)
                finally:
                    inputs.close()

    def _new_workers(self, name: str) -> Workers:
        folder = Path(self._scratch.name, name)
        folder.mkdir()
        return Workers(self._request, self._request.submission, folder)


def small_case(case: Case, replaced: dict[str, int]) -> Case:
    """The case with some keys replaced by smaller values, other keys untouched."""
    spec = {key: replaced.get(key, value) for key, value in case.spec.items() if key not in ("kvmin",)}
    return Case.from_spec(spec)


def device_names() -> list[str]:
    """What this machine has to measure on: every GPU, else the CPU."""
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]
