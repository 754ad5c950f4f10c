"""What takes the place of a Bench in the processes of tests: light, and with troubles on demand."""

import os
import signal
from dataclasses import replace
from pathlib import Path

from sweep.errors import CaseRefused, DeviceLost, KernelsNotLoaded
from sweep.variant import Machine, Outcome

MACHINE = Machine("Simulated GPU X1", "sim_1", "cuda", "1.0", "2.0")


class FakeBench:
    """Measures by the simulation. The submission's text is a folder in which devices leave notes, and a kind of trouble."""

    def __init__(self, config):
        self.device, (folder, self.trouble) = config.device, config.submission.split("|")
        self.folder, self.machine = Path(folder), MACHINE
        if self.trouble == "other machine" and self.device == "cuda:1":
            self.machine = replace(MACHINE, name="Another GPU")
        if self.trouble == "never starts" and self.device == "cuda:1":
            raise DeviceLost("cannot start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def about(self):
        return self.machine

    def prepare(self, asks):
        self.note("prepared")

    def note(self, word):
        with (self.folder / f"{self.device}.{word}").open("a") as file:
            file.write("x")

    def count(self, word):
        path = self.folder / f"{self.device}.{word}"
        return len(path.read_text()) if path.exists() else 0

    def measure(self, ask):
        self.note("asked")
        match self.trouble:
            case "dies once" if self.count("died") == 0:
                self.note("died")
                os.kill(os.getpid(), signal.SIGKILL)
            case "always dies" if self.device == "cuda:0":
                os._exit(7)
            case "all die":
                raise DeviceLost("an illegal memory access")
            case "bad case":
                raise CaseRefused("generate_input refused the case `seed: 1`")
            case "not loaded":
                raise KernelsNotLoaded("the kernels do not load: no custom_kernel")
        return [Outcome((1000,) * ask.samples) for _ in ask.variants]
