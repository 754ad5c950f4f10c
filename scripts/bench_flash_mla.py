#!/usr/bin/env python3
"""Tune and time flash_mla_with_kvcache on this machine's GPU, beside FlashMLA where it is installed; needs torch and triton.

    python3 scripts/bench_flash_mla.py --out tuned.json         all shapes: parameters tried, the best timed again
    python3 scripts/bench_flash_mla.py --out t.json --only "heads 64 batch 4,dense"    the shapes whose names hold these letters
    python3 scripts/bench_flash_mla.py --out t.json --only v32 --backend cuda --together    one backend, one process
    python scripts/bench_flash_mla.py --apply tuned.json        write the results into problems/flash_mla/dispatch.yml
    TRITON_INTERPRET=1 python scripts/bench_flash_mla.py --dry-run --out t.json    the same path on a CPU; no times worth a look

Times are cold (the L2 is evicted by reading 256 MiB, the launch hidden behind a device-side sleep), medians. Cache entries
that a case does not use are NaN. Every candidate is held against the fp64 oracle first. Kernels are compiled beforehand, in
parallel; every shape runs in a process of its own, which is ended if it takes longer than --timeout-s.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
PROBLEM = ROOT / "problems" / "flash_mla"
sys.path.insert(0, str(ROOT))

from harness.modules import ModuleSpace  # noqa: E402
from kernels.flash_mla.call import Call, check_call, workload  # noqa: E402
from kernels.flash_mla.cuda_backend import SPARSE_HEADS, SPARSE_TILE, SparseCudaBackend, SparsePlan  # noqa: E402
from kernels.flash_mla.triton_backend import TritonBackend, TritonPlan  # noqa: E402
from kernels.triton_launch import ceil_div, multiprocessors  # noqa: E402

reference: Any = ModuleSpace(PROBLEM).load("reference")  # the problem's, not the repository root's
LONG = {"qseqlen": 1, "kvseqlen": 32768, "page": 64}
# FlashMLA's cold medians on an H200 in microseconds, by (heads up to, batch): V32, topk 2048.
FLASH_MLA_US = {(64, 4): 21.6, (64, 32): 47, (64, 64): 74, (64, 128): 116, (64, 256): 226, (128, 128): 189, (128, 256): 371}
FLASH_MLA_DENSE_US = {8192: 452, 16384: 864, 32768: 1705}  # batch 128, 128 heads
SHAPES: dict[str, dict[str, Any]] = {
    **{
        f"v32 heads {heads} batch {batch}": LONG | {"batchsize": batch, "numheads": heads, "layout": "v32", "topk": 2048}
        for heads, batch in itertools.product((64, 16, 128), (4, 32, 64, 128, 256))
    },
    **{
        f"model1 heads {heads} extra {extra}": {
            "batchsize": 64, "qseqlen": 2, "kvseqlen": 16384, "numheads": heads, "layout": "model1", "topk": 128, "page": 256,
            "extratopk": extra, "sink": "normal",
        }
        for heads, extra in itertools.product((64, 128), (512, 1024))
    },
    **{
        f"dense heads 128 tokens {tokens}": {"batchsize": 128, "qseqlen": 1, "kvseqlen": tokens, "numheads": 128}
        for tokens in (4096, 8192, 16384, 32768)
    },
}  # fmt: skip
TINY = {"v32 tiny": {"batchsize": 1, "qseqlen": 1, "kvseqlen": 64, "numheads": 16, "layout": "v32", "topk": 40}}
# block_m, block_n, num_warps, num_stages, operand
WARP_GROUPS = [(64, 64, 8, 2), (64, 64, 8, 3), (64, 64, 8, 1), (64, 32, 8, 3), (64, 32, 8, 2)]
SMALL = [(16, 64, 8, 2), (16, 64, 8, 3), (16, 32, 4, 3), (16, 32, 4, 2), (16, 32, 8, 3), (16, 64, 8, 1)]
WAVES = (0.5, 1, 2)  # programs per multiprocessor
CUDA_WAVES = (0.25, 0.5, 1, 2, 3)
BACKENDS = {"triton": (TritonBackend(), TritonPlan), "cuda": (SparseCudaBackend(), SparsePlan)}
SCREEN_SAMPLES, FINAL_SAMPLES, FINALISTS = 9, 41, 4
COMPILE_TIMEOUT_S = 90
EVICT_FLOATS = 64 << 20  # 256 MiB
SLEEP_CYCLES = 400_000  # covers the host's work for one call


class ColdClock:
    """Cold times of calls in nanoseconds; on a CPU plain host times, so that the dry run can go through the motions."""

    def __init__(self, device: torch.device) -> None:
        self.gpu = device.type == "cuda"
        self.evict = torch.zeros(EVICT_FLOATS if self.gpu else 1, device=device)

    def samples_ns(self, calls: list[Callable[[], Any]], count: int) -> list[list[float]]:
        """`count` samples of each call, interleaved, after one call each to warm up."""
        for call in calls:
            call()
        if not self.gpu:
            return [[host_ns(call) for _ in range(count)] for call in calls]
        events = [[self.record(call) for call in calls] for _ in range(count)]
        torch.cuda.synchronize()
        return [[row[index][0].elapsed_time(row[index][1]) * 1e6 for row in events] for index in range(len(calls))]

    def record(self, call: Callable[[], Any]) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.evict.sum()
        torch.cuda._sleep(SLEEP_CYCLES)
        begin.record()
        call()
        end.record()
        return begin, end


def host_ns(call: Callable[[], Any]) -> float:
    begin = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begin


def describe_device(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    versions = {"cuda": torch.version.cuda, "torch": torch.__version__, "triton": sys.modules["triton"].__version__}
    return {"device": name, "date": date, **versions}


def tiles(shape: dict[str, Any]) -> list[dict[str, Any]]:
    """Parameters to try, without the splits."""
    names = ("block_m", "block_n", "num_warps", "num_stages", "operand")
    fp8 = shape.get("layout", "bf16") != "bf16"
    small = SMALL if shape["numheads"] <= 16 else []
    rows = [(*tile, operand) for tile in WARP_GROUPS for operand in (("f16", "bf16") if fp8 else ("bf16",))]
    rows += [(*tile, "f16" if fp8 else "bf16") for tile in small]
    return [dict(zip(names, row, strict=True)) for row in rows]


def candidates(call: Call, shape: dict[str, Any], backends: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """(backend, parameters) to try."""
    found = [("triton", params) for params in triton_candidates(call, shape)] if "triton" in backends else []
    cuda = "cuda" in backends and SparseCudaBackend().unserved(call) is None
    return found + ([("cuda", {"num_kv_splits": splits}) for splits in cuda_splits(call)] if cuda else [])


def cuda_splits(call: Call) -> list[int]:
    work = workload(call)
    blocks = work.groups * ceil_div(work.shared_rows, SPARSE_HEADS)
    fills = [int(waves * multiprocessors(call.q.device) / blocks) for waves in CUDA_WAVES]
    default = SparseCudaBackend().default_params(work, call.q.device)["num_kv_splits"]
    return sorted({max(1, min(n, ceil_div(work.tokens, SPARSE_TILE))) for n in (default, *fills)})


def triton_candidates(call: Call, shape: dict[str, Any]) -> list[dict[str, Any]]:
    work = workload(call)
    base = TritonBackend().default_params(work, call.q.device)
    found = []
    for tile in tiles(shape):
        programs = work.groups * ceil_div(work.shared_rows, tile["block_m"])
        fills = {round(waves * multiprocessors(call.q.device) / programs) for waves in WAVES}
        longest = ceil_div(work.tokens, tile["block_n"])
        found += [base | tile | {"num_kv_splits": splits} for splits in sorted({max(1, min(n, longest, 64)) for n in fills})]
    return found


def load(shape: dict[str, Any], device: str) -> tuple[Any, Call]:
    data = reference.generate_input(**shape, seed=1000 + shape["batchsize"], device=device)
    return data, check_call({"q": data[0], "k_cache": data[1], **data[2]})


def compile_one(job: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Fill Triton's cache on disk with the kernels of one candidate, on a small case of the same constants."""
    shape, params = job
    lengths = {"batchsize": 1, "kvseqlen": 256, "topk": min(shape.get("topk", 0), 64)}
    if shape.get("extratopk"):
        lengths["extratopk"] = 64
    with contextlib.suppress(Exception):  # the run itself will meet it and report
        TritonPlan(load(shape | lengths, "cuda")[1], params)


def compile_all(shapes: dict[str, dict[str, Any]]) -> None:
    """Compile what the run needs on all cores. One that takes too long is left to the run, which has its own limit."""
    jobs = {}
    for shape in shapes.values():
        for tile, splits in itertools.product(tiles(shape), (1, 2)):
            constants = {key: value for key, value in shape.items() if key not in ("batchsize", "kvseqlen")}
            params = {"combine_block_d": 128, "combine_warps": 1, "overlap": True, "num_kv_splits": splits} | tile
            jobs[json.dumps([constants, params])] = (shape, params)
    with multiprocessing.get_context("spawn").Pool(min(12, os.cpu_count() or 1)) as pool:
        waiting = [pool.apply_async(compile_one, (job,)) for job in jobs.values()]
        for done, result in enumerate(waiting, 1):
            with contextlib.suppress(multiprocessing.TimeoutError):
                result.get(COMPILE_TIMEOUT_S)
            if done % 20 == 0 or done == len(waiting):
                print(f"  compiled {done}/{len(waiting)}", flush=True)
        pool.terminate()


def installed_flash_mla(data: Any) -> Callable[[], Any] | None:
    """A call of FlashMLA itself on `data`, if it is installed and serves it."""
    try:
        import flash_mla  # type: ignore[import-not-found]

        metadata = flash_mla.get_mla_metadata()[0]

        def call() -> Any:
            return flash_mla.flash_mla_with_kvcache(data[0], data[1], tile_scheduler_metadata=metadata, **data[2])

        call()
        torch.cuda.synchronize()
    except Exception as error:  # not installed, or an older one with another signature: the table's times stand
        print(f"    FlashMLA is not compared: {type(error).__name__}: {str(error)[:100]}")
        return None
    return call


class Tuning:
    """The candidates of one shape."""

    def __init__(self, shape: dict[str, Any], device: str, backends: list[str]) -> None:
        self.shape = shape
        self.backends = [name for name in backends if BACKENDS[name][0].available(torch.device(device)) is None]
        self.data, self.call = load(shape, device)
        self.expected = reference.ref_kernel(self.data)
        self.clock = ColdClock(torch.device(device))
        self.rejected: list[str] = []

    def plan(self, backend: str, params: dict[str, Any]) -> TritonPlan | SparsePlan | None:
        """A checked plan, or None with the reason noted."""
        label = " ".join((backend, *(f"{key}={value}" for key, value in params.items())))
        try:
            plan = BACKENDS[backend][1](self.call, params)
            wrong = reference.official_message(self.data, plan(self.call), self.expected)
        except Exception as error:  # a compiler failure rejects one candidate, not the shape
            self.rejected.append(f"{label}: {type(error).__name__}: {str(error)[:120]}")
            return None
        if wrong and self.clock.gpu:  # Triton's interpreter truncates to bf16, which the cosine difference shows
            self.rejected.append(f"{label}: WRONG: {wrong}")
            return None
        if plan.params != params:
            self.rejected.append(f"{label}: needs more shared memory than there is")
            return None
        return plan

    def run(self, every: int) -> dict[str, Any]:
        """Screen each candidate alone; time the best, interleaved with FlashMLA if it is there."""
        screen, final = (SCREEN_SAMPLES, FINAL_SAMPLES) if self.clock.gpu else (1, 1)
        screened = []
        for candidate in candidates(self.call, self.shape, self.backends)[::every]:
            if plan := self.plan(*candidate):
                times = self.clock.samples_ns([lambda plan=plan: plan(self.call)], screen)[0]
                screened.append((statistics.median(times), candidate))
        screened.sort(key=lambda pair: pair[0])
        plans = [(name, plan) for _, (name, params) in screened[:FINALISTS] if (plan := self.plan(name, params))]
        calls: list[Callable[[], Any]] = [lambda plan=plan: plan(self.call) for _, plan in plans]
        peer = installed_flash_mla(self.data) if self.clock.gpu else None
        samples = self.clock.samples_ns([*calls, *([peer] if peer else [])], final)
        results = [
            {"backend": name, "params": plan.params, "median_ns": statistics.median(times), "samples_ns": times}
            for (name, plan), times in zip(plans, samples, strict=False)
        ]
        return {
            "shape": list(workload(self.call)),
            "results": sorted(results, key=lambda result: result["median_ns"]),
            "flash_mla_ns": statistics.median(samples[-1]) if peer else None,
            "min_bytes": reference.min_bytes(self.shape | {"seed": 1000 + self.shape["batchsize"]}),
            "rejected": self.rejected,
        }


def table_us(shape: dict[str, Any]) -> float | None:
    """What is known of FlashMLA on an H200 for a shape."""
    if shape.get("layout") == "v32":
        return FLASH_MLA_US.get((64 if shape["numheads"] <= 64 else 128, shape["batchsize"]))
    return FLASH_MLA_DENSE_US.get(shape["kvseqlen"]) if not shape.get("topk") else None


def print_result(name: str, shape: dict[str, Any], found: dict[str, Any]) -> None:
    if not found["results"]:
        print(f"{name}: every candidate was rejected; the first: {found['rejected'][:1]}", flush=True)
        return
    best = found["results"][0]
    us, known = best["median_ns"] / 1e3, table_us(shape)
    beside = f", FlashMLA here {found['flash_mla_ns'] / 1e3:.1f}" if found["flash_mla_ns"] else ""
    beside += f", FlashMLA's table {known} (x {us / known:.2f})" if known else ""
    print(f"{name}: {us:.1f} us, {found['min_bytes'] / best['median_ns']:.0f} GB/s{beside}", flush=True)
    for result in found["results"]:
        print(f"    {result['median_ns'] / 1e3:.1f} us {result['backend']}", *(f"{k}={v}" for k, v in result["params"].items()))
    for line in [line for line in found["rejected"] if "WRONG" in line][:3]:
        print(f"    {line}")


def in_child(options: argparse.Namespace, name: str) -> dict[str, Any] | None:
    """What a child process finds for one shape; None, said, if it fails or takes too long."""
    dry_run = ["--dry-run"] if options.dry_run else []
    command = [sys.executable, __file__, "--one", name, *dry_run, "--backend", *options.backend]
    try:
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=options.timeout_s)
    except subprocess.TimeoutExpired:
        print(f"{name}: longer than {options.timeout_s} s; left out", flush=True)
        return None
    if child.returncode:
        print(f"{name}: failed with {child.returncode}; left out", flush=True)
        return None
    *said, last = child.stdout.splitlines()
    print("\n".join(said), end="\n" if said else "", flush=True)
    return json.loads(last)


def tune(options: argparse.Namespace, shape: dict[str, Any]) -> dict[str, Any]:
    tuning = Tuning(shape, "cpu" if options.dry_run else "cuda", options.backend)
    return tuning.run(every=9 if options.dry_run else 1)


def measure(options: argparse.Namespace, shapes: dict[str, dict[str, Any]]) -> None:
    """The report is rewritten after each shape, so that nothing is lost."""
    began = time.monotonic()
    if not options.dry_run and "triton" in options.backend:
        compile_all(shapes)
        print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
    report: dict[str, Any] = describe_device(torch.device("cpu" if options.dry_run else "cuda"))
    report |= {"method": __doc__, "shapes": {}}
    for name, shape in shapes.items():
        found = tune(options, shape) if options.together else in_child(options, name)
        if found:
            report["shapes"][name] = found
            print_result(name, shape, found)
            options.out.write_text(json.dumps(report))
    print(f"done after {time.monotonic() - began:.0f} s", flush=True)


def apply(path: Path, label: str) -> None:
    """Replace the entries of `label` in problems/flash_mla/dispatch.yml by the best of every shape, comments kept."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    report = json.loads(path.read_text())
    table_path = PROBLEM / "dispatch.yml"
    yaml = YAML()
    yaml.width = 160
    table = yaml.load(table_path)
    entries = CommentedSeq()
    for found in report["shapes"].values():
        if found["results"]:
            best = found["results"][0]
            evidence = {"device": report["device"], "date": report["date"][:10], "median_ns": round(best["median_ns"])}
            entry = CommentedMap(backend=best["backend"], shape=found["shape"], params=best["params"], evidence=evidence)
            entry.fa.set_block_style()
            entries.append(entry)
    for entry, key in itertools.product(entries, ("shape", "params", "evidence")):
        entry[key] = flow(entry[key])
    table["flash-mla"] = {label: entries}
    yaml.dump(table, table_path)
    print(f"{table_path.relative_to(ROOT)}: {len(entries)} entries for {label}; now `make submission`")


def flow(value: Any) -> Any:
    """A list or dict that YAML writes on one line."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    node = CommentedMap(value) if isinstance(value, dict) else CommentedSeq(value)
    node.fa.set_flow_style()
    return node


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the report goes")
    parser.add_argument("--only", default="", metavar="LETTERS,...", help="shapes whose names hold any of these")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=list(BACKENDS), help="default: both")
    parser.add_argument("--together", action="store_true", help="all shapes in this process: no time goes into starting others")
    parser.add_argument("--timeout-s", type=float, default=75, help="limit for a shape (default %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="a tiny shape on the CPU, under TRITON_INTERPRET=1")
    parser.add_argument("--apply", type=Path, metavar="FILE", help="write a report into the table")
    parser.add_argument("--label", default="H200", help="what the table calls the device (default %(default)s)")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    shapes = TINY if options.dry_run else SHAPES
    if options.apply:
        apply(options.apply, options.label)
    elif options.one:
        print(json.dumps(tune(options, shapes[options.one])))
    elif options.out:
        wanted = options.only.split(",")
        chosen = {name: shape for name, shape in shapes.items() if any(letters in name for letters in wanted)}
        if not chosen:
            parser.error(f"--only {options.only}: no shape's name holds it; they are {', '.join(shapes)}")
        if not options.dry_run and not torch.cuda.is_available():
            parser.error("no GPU on this machine; --dry-run goes through the motions on a CPU")
        measure(options, chosen)
    else:
        parser.error("give --out FILE to measure, or --apply FILE")
    return 0


if __name__ == "__main__":
    sys.exit(main())
