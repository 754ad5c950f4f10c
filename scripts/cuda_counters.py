#!/usr/bin/env python3
"""What Nsight Compute counts in the MLA kernel of each official case: which limit binds.

    python scripts/cuda_counters.py                                        a table
    python scripts/cuda_counters.py --json docs/results/h200-counters.json    the record behind docs/h200.md
    python scripts/cuda_counters.py --raw FOLDER                           from BATCHxKV.csv files (ncu --page raw --csv)

Needs an NVIDIA GPU, ncu, and the right to read its counters; some 12 s a case. Every case is a call of submission.py on
cold caches, at the clocks that the device has by itself.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.docs_tables import counters_table  # noqa: E402

CASES = tuple((batch, kv) for batch in (4, 32, 64, 256) for kv in (1024, 8192))
KERNEL, WARM_CALLS = "mla_", 2
TIMEOUT_S = 120
# Nsight Compute's names: percent of what the unit can do while a multiprocessor is active, or in the whole time.
PERCENT = {
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "alu": "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "shared": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
}
DURATION, READ = "gpu__time_duration.sum", "dram__bytes_read.sum"
ACTIVE, ELAPSED = "sm__cycles_active.avg", "sm__cycles_elapsed.max"
WAIT, WAIT_END = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
TOP_WAITS = 3


class CannotCount(Exception):
    """ncu is missing or refuses, or its record is not what it should be; the message says which, and the remedy."""


@dataclass(frozen=True)
class Counted:
    """One launch. Percentages are of the peak; `busy` is the share of the time in which a multiprocessor has work."""

    batch: int
    kv: int
    kernel: str
    blocks: int
    threads: int
    duration_ns: float
    read_bytes: float
    busy: float
    percent: dict[str, float]
    waits: dict[str, float]  # what warps spend their time on: the largest shares, 1 in all


def parse_raw(text: str, batch: int, kv: int) -> Counted:
    """The last launch of `ncu --page raw --csv`. Raises CannotCount."""
    rows = [row for row in csv.reader(io.StringIO(text)) if len(row) > 10]
    if len(rows) < 3:
        raise CannotCount(f"{batch}x{kv}: ncu recorded no launch of {KERNEL}*; run the case by itself to see why")
    units, values = (dict(zip(rows[0], row, strict=True)) for row in (rows[1], rows[-1]))

    def number(name: str) -> float:
        try:
            return float(values[name].replace(",", "")) * UNITS.get(units[name], 1)
        except (KeyError, ValueError):
            raise CannotCount(f"{batch}x{kv}: ncu's record has no {name}; take it with --set full") from None

    named = {name: number(name) for name in values if name.startswith(WAIT) and name.endswith(WAIT_END)}
    stalls = {name[len(WAIT) : -len(WAIT_END)]: value for name, value in named.items() if "not_issued" not in name}
    total = sum(stalls.values()) or 1.0
    largest = sorted(stalls, key=lambda name: -stalls[name])[:TOP_WAITS]
    return Counted(
        batch,
        kv,
        values.get("Kernel Name", "").removeprefix("void "),
        int(number("launch__grid_size")),
        int(number("launch__block_size")),
        number(DURATION),
        number(READ),
        number(ACTIVE) / number(ELAPSED),
        {name: number(metric) for name, metric in PERCENT.items()},
        {name: stalls[name] / total for name in largest},
    )


def call(batch: int, kv: int) -> None:
    """What ncu watches: calls of the submission, with another kernel's reads between them."""
    import torch

    import submission
    from reference import generate_input

    data = generate_input(batchsize=batch, qseqlen=1, kvseqlen=kv, seed=4217)
    other = torch.ones(64 << 20, device="cuda")
    for _ in range(WARM_CALLS + 1):
        submission.custom_kernel(data)
        other.sum()
    torch.cuda.synchronize()


def count(ncu: str, batch: int, kv: int) -> str:
    """ncu's record of one launch, as CSV. Raises CannotCount."""
    with tempfile.TemporaryDirectory(prefix="cuda-counters-") as folder:
        report = str(Path(folder, "launch.ncu-rep"))
        watched = [sys.executable, __file__, "--call", str(batch), str(kv)]
        which = ["-k", f"regex:{KERNEL}", "--launch-skip", str(WARM_CALLS), "--launch-count", "1"]
        run([ncu, "--set", "full", "--clock-control", "none", *which, "-o", report, *watched], batch, kv)
        return run([ncu, "--import", report, "--page", "raw", "--csv"], batch, kv)


def run(command: Sequence[str], batch: int, kv: int) -> str:
    """What a command printed. Raises CannotCount."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise CannotCount(f"{batch}x{kv}: ncu took more than {TIMEOUT_S} s; is the device in use?") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise CannotCount(f"{batch}x{kv}: ncu failed; it needs a GPU and the right to read its counters: {' / '.join(said)}")
    return done.stdout


def texts(raw: Path | None) -> Iterator[tuple[int, int, str]]:
    """Batch, KV length and record of each case: measured now, or read from a folder. Raises CannotCount."""
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if raw is None and not Path(ncu).exists():
        raise CannotCount("ncu is not on PATH; it comes with the CUDA toolkit")
    for batch, kv in CASES:
        try:
            yield batch, kv, (raw / f"{batch}x{kv}.csv").read_text() if raw else count(ncu, batch, kv)
        except OSError as error:
            raise CannotCount(f"{error.filename}: {error.strerror}; --raw wants one file a case") from None


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record, again after every case")
    parser.add_argument("--raw", type=Path, metavar="FOLDER", help="measure nothing, read what ncu has recorded")
    parser.add_argument("--call", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.call:
        call(*options.call)
        return 0
    record = {"schema_version": 1, "cases": []}
    try:
        for done, (batch, kv, text) in enumerate(texts(options.raw), 1):
            record["cases"].append(asdict(parse_raw(text, batch, kv)))
            print(f"[{done}/{len(CASES)}] {batch}x{kv}", file=sys.stderr)
            if options.json:
                options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except CannotCount as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(counters_table([record]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
