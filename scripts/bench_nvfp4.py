#!/usr/bin/env python3
"""Time the kernels of the NVFP4 block-sparse problem on this machine's GPU, as a fraction of a plain cold read.

    python3 scripts/bench_nvfp4.py --out nvfp4.json           the defaults, then a search (needs torch and triton only)
    python3 scripts/bench_nvfp4.py --out nvfp4.json --quick   the defaults alone
    python3 scripts/bench_nvfp4.py --out nvfp4.json --backend cuda             the CUDA kernel instead of the Triton one
    python scripts/bench_nvfp4.py --apply nvfp4.json          write the best into the problem's dispatch.yml; needs ruamel.yaml
    TRITON_INTERPRET=1 python scripts/bench_nvfp4.py --dry-run --out x.json     the same on a CPU; its times mean nothing

Clock and floor are the harness's: cold by reading 256 MiB, the launch hidden behind a device-side sleep, median of the samples.
Every result passes the strict verdict before it is timed. The GPU is used by a process of its own: a configuration that hangs
or crashes costs --timeout-s, not the run. The file is rewritten after every case.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.floors import SLEEP_NS, ReadFloor  # noqa: E402
from harness.modules import ModuleSpace  # noqa: E402
from harness.timing import Cold, make_timer  # noqa: E402
from kernels.nvfp4_msa.cuda_backend import CUDA_SHAPES, CUDA_SIZES, CUDA_SPLITS, CudaBackend, CudaPlan  # noqa: E402
from kernels.nvfp4_msa.layout import Shape, shape_of  # noqa: E402
from kernels.nvfp4_msa.triton_backend import MAX_TRITON_SPLITS, TritonBackend, TritonPlan  # noqa: E402
from kernels.nvfp4_msa.unpack import UNPACK_MODES  # noqa: E402

PROBLEM = ROOT / "problems" / "nvfp4_msa"
BACKENDS: dict[str, tuple[Any, Any]] = {"triton": (TritonBackend, TritonPlan), "cuda": (CudaBackend, CudaPlan)}
# The benchmarks of task.yml, which is not read here: a machine with a GPU may lack a YAML reader.
BENCHMARKS: list[dict[str, Any]] = [
    {"batchsize": 1, "qseqlen": 1, "kvseqlen": 131072, "topk": 16, "seed": 201},
    {"batchsize": 16, "qseqlen": 1, "kvseqlen": 32768, "topk": 16, "seed": 202},
    {"batchsize": 64, "qseqlen": 1, "kvseqlen": 32768, "topk": 16, "seed": 203},
    {"batchsize": 256, "qseqlen": 1, "kvseqlen": 32768, "topk": 16, "seed": 204},
    {"batchsize": 64, "qseqlen": 1, "kvseqlen": 131072, "topk": 16, "seed": 205, "numkvheads": 4},
    {"batchsize": 256, "qseqlen": 1, "kvseqlen": 8192, "topk": 16, "seed": 206, "numkvheads": 4},
    {"batchsize": 128, "qseqlen": 2, "kvseqlen": 32768, "topk": 16, "seed": 207, "groupsize": 8},
    {"batchsize": 64, "qseqlen": 3, "kvseqlen": 32768, "topk": 16, "seed": 208, "numkvheads": 4, "groupsize": 4},
    {"batchsize": 128, "qseqlen": 1, "kvseqlen": 32768, "topk": 64, "seed": 209, "numkvheads": 2},
]
TINY = [{"batchsize": 1, "qseqlen": 1, "kvseqlen": 200, "topk": 2, "seed": 1}]
# num_warps, keys of a tile for each warp, num_stages, maxnreg (None: the compiler decides)
TILES = [
    (4, 32, 2, None),
    (4, 32, 3, None),
    (4, 32, 4, None),
    (4, 32, 3, 168),
    (4, 16, 4, None),
    (2, 64, 2, None),
    (2, 64, 3, None),
    (2, 64, 4, None),
    (2, 32, 3, None),
    (2, 32, 4, None),
    (2, 32, 6, None),
    (1, 64, 3, None),
    (1, 64, 4, None),
    (1, 32, 4, None),
    (1, 32, 6, None),
    (8, 16, 3, None),
]
SPLITS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
SCREEN_SAMPLES, FINAL_SAMPLES, FINALISTS = 11, 41, 4
EVICT_BYTES = 256 << 20
GOAL = 0.7  # of a plain cold read of the same bytes


def load_reference() -> Any:
    return ModuleSpace(PROBLEM).load("reference")


# ---- in the process that uses the GPU ------------------------------------------------------------------------------------


class Bench:
    """The inputs, the oracle's result and the floor of one case at a time."""

    def __init__(self, device: torch.device, backend: str) -> None:
        self.device, self.reference = device, load_reference()
        self.backend, self.plan = BACKENDS[backend]
        cold = Cold("read", EVICT_BYTES) if device.type == "cuda" else Cold("none")
        self.timer, self.floor = make_timer(device, cold), ReadFloor(device, cold)
        self.spec: dict[str, Any] | None = None

    def load(self, spec: dict[str, Any]) -> None:
        if spec != self.spec:
            self.data = self.reference.generate_input(**spec, device=self.device)
            self.expected = self.reference.oracle(self.data)
            self.spec = spec

    def floor_ns(self, spec: dict[str, Any]) -> float | None:
        """The median of plain cold reads of the case's bytes; None on a CPU."""
        return self.floor.ns(self.reference.min_bytes(spec)) if self.device.type == "cuda" else None

    def samples_ns(self, call: Callable[[], Any], count: int) -> list[int]:
        """On a CPU two: they only show that everything runs."""
        call()
        return [self.timer.time(call, SLEEP_NS)[0].elapsed_ns for _ in range(count if self.device.type == "cuda" else 2)]

    def defaults(self, spec: dict[str, Any]) -> dict[str, Any]:
        self.load(spec)
        return self.backend().default_params(shape_of(self.data), self.device)

    def measure(self, spec: dict[str, Any], params: dict[str, Any], count: int) -> dict[str, Any]:
        """Samples of one configuration, or why it is out."""
        self.load(spec)
        plan = self.plan(self.data, params)
        if plan.params != params:
            return {"error": "needs more shared memory than there is"}
        plan.out.fill_(float("nan"))
        verdict = self.reference.judge_strict(plan(self.data).double(), self.expected)
        if not verdict["ok"]:
            return {"error": f"WRONG: {verdict['message']}"}
        if self.plan is TritonPlan and bool(plan.tickets.any()):
            return {"error": "WRONG: tickets are left"}
        samples = self.samples_ns(lambda: plan(self.data), count)
        return {"median_ns": statistics.median(samples), "samples_ns": samples, "rel_l2": verdict["rel_l2_worst"]}


def serve(connection: Any, device: str, backend: str) -> None:
    """Answer (method, arguments) until the other end closes."""
    bench = Bench(torch.device(device), backend)
    with contextlib.suppress(EOFError):
        while True:
            method, arguments = connection.recv()
            try:
                connection.send(getattr(bench, method)(*arguments))
            except Exception as error:  # one configuration's failure
                connection.send({"error": f"{type(error).__name__}: {str(error)[:200]}"})


def compile_one(job: tuple[dict[str, Any], dict[str, Any], str]) -> None:
    """Fill Triton's cache on disk. Failures are left for `measure` to meet and report."""
    spec, params, device = job
    small = spec | {"batchsize": 1, "kvseqlen": 128}
    with contextlib.suppress(Exception):
        TritonPlan(load_reference().generate_input(**small, device=device), params)


# ---- in the process that asks --------------------------------------------------------------------------------------------


class Worker:
    """A process that answers within a time limit, or is replaced."""

    def __init__(self, device: str, timeout_s: float, backend: str = "triton") -> None:
        self.device, self.timeout_s, self.process, self.backend = device, timeout_s, None, backend

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.device, self.backend), daemon=True)
        self.process.start()
        theirs.close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None

    def ask(self, method: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """The answer, or {"error": ...} when it does not come."""
        if self.process is None:
            self.start()
        limit_s = timeout_s or self.timeout_s
        try:
            self.connection.send((method, arguments))
            if self.connection.poll(limit_s):
                return self.connection.recv()
            reason = f"no answer within {limit_s:g} s"
        except (EOFError, OSError):
            reason = "the process ended"
        self.stop()
        return {"error": reason}


def tile_params(tile: tuple[int, int, int, int | None], splits: int, unpack: str) -> dict[str, Any]:
    num_warps, keys, num_stages, maxnreg = tile
    params = {"num_kv_splits": splits, "num_warps": num_warps, "keys": keys, "num_stages": num_stages, "unpack": unpack}
    return params | ({"maxnreg": maxnreg} if maxnreg else {})


def split_candidates(spec: dict[str, Any], near: int) -> list[int]:
    """Split counts within a factor of four of `near` that leave every split a block."""
    blocks = min(spec["topk"], -(-spec["kvseqlen"] // 128), MAX_TRITON_SPLITS)
    return [splits for splits in SPLITS if splits <= blocks and near / 4 <= splits <= near * 4]


class Search:
    """Configurations of one case, each measured once per round."""

    def __init__(self, worker: Worker, spec: dict[str, Any], pool: Any) -> None:
        self.worker, self.spec, self.pool = worker, spec, pool
        self.errors: list[str] = []

    def measure(self, candidates: Iterable[dict[str, Any]], count: int) -> list[dict[str, Any]]:
        """Results, fastest first."""
        unique = list({json.dumps(params, sort_keys=True): params for params in candidates}.values())
        if self.pool and len(unique) > 1:
            self.pool.map(compile_one, [(self.spec, params, self.worker.device) for params in unique], chunksize=1)
        results = []
        for params in unique:
            answer = self.worker.ask("measure", self.spec, params, count)
            if "error" in answer:
                self.errors.append(f"{' '.join(f'{k}={v}' for k, v in params.items())}: {answer['error']}")
            else:
                results.append({"params": params, **answer})
        return sorted(results, key=lambda result: result["median_ns"])

    def run_cuda(self, defaults: dict[str, Any]) -> list[dict[str, Any]]:
        """Every shape of blocks with every number of splits: the finalists again."""
        shapes = [dict(zip(CUDA_SIZES, sizes, strict=True)) for sizes in CUDA_SHAPES]
        splits = [count for count in CUDA_SPLITS if count <= self.spec["topk"]]
        candidates = [{"num_kv_splits": count, **shape} for shape in shapes for count in splits]
        found = self.measure([defaults, *candidates], SCREEN_SAMPLES)
        return self.measure([result["params"] for result in found[:FINALISTS]], FINAL_SAMPLES)

    def run(self, defaults: dict[str, Any], tiles: list[tuple]) -> list[dict[str, Any]]:
        """Tiles at the default splits, splits of the best tiles, the other unpacking of the best: the finalists again."""
        splits, unpack = defaults["num_kv_splits"], defaults["unpack"]
        found = self.measure([defaults, *(tile_params(tile, splits, unpack) for tile in tiles)], SCREEN_SAMPLES)
        best = [result["params"] for result in found[:FINALISTS]]
        more = [params | {"num_kv_splits": count} for params in best for count in split_candidates(self.spec, splits)]
        found += self.measure((params for params in more if params["num_kv_splits"] != splits), SCREEN_SAMPLES)
        found.sort(key=lambda result: result["median_ns"])
        best = [result["params"] for result in found[:FINALISTS]]
        others = [mode for mode in UNPACK_MODES if unpack != "portable" and mode not in (unpack, "portable")]
        return self.measure([*best, *(params | {"unpack": mode} for mode in others for params in best[:2])], FINAL_SAMPLES)


def label_of(spec: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in spec.items() if key != "seed")


def print_case(case: dict[str, Any], elapsed_s: float) -> None:
    floor_ns = case["floor_ns"]
    floor = f"floor {floor_ns / 1e3:.1f} us for {case['bytes'] / 1e6:.1f} MB" if floor_ns else "no floor on a CPU"
    print(f"{label_of(case['spec'])}: {floor}   ({elapsed_s:.0f} s)")
    for result in case["results"][:3]:
        fraction = f"{floor_ns / result['median_ns']:4.0%} of the floor" if floor_ns else ""
        params = " ".join(f"{key}={value}" for key, value in result["params"].items())
        print(f"  {result['median_ns'] / 1e3:8.1f} us  {fraction}  {params}", flush=True)
    for error in case["errors"]:
        print(f"  out: {error}")


def print_summary(report: dict[str, Any]) -> None:
    """Where the goal counts: batch 64 and more, topk 16."""
    counted = [case for case in report["cases"] if case["spec"]["batchsize"] >= 64 and case["spec"]["topk"] == 16]
    for case in counted:
        if case["floor_ns"] and case["results"]:
            fraction = case["floor_ns"] / case["results"][0]["median_ns"]
            verdict = "reached" if fraction >= GOAL else "MISSED "
            print(f"{verdict}  {fraction:4.0%} of the floor (goal {GOAL:.0%})  {label_of(case['spec'])}")


def measure_case(worker: Worker, spec: dict[str, Any], pool: Any, options: argparse.Namespace) -> dict[str, Any]:
    case: dict[str, Any] = {"spec": spec, "floor_ns": None, "bytes": load_reference().min_bytes(spec), "results": []}
    defaults = worker.ask("defaults", spec, timeout_s=options.setup_s)
    floor_ns = worker.ask("floor_ns", spec, timeout_s=options.setup_s)
    failed = [answer["error"] for answer in (defaults, floor_ns) if isinstance(answer, dict) and "error" in answer]
    if failed:
        return case | {"errors": failed}
    search = Search(worker, spec, pool)
    if options.quick:
        results = search.measure([defaults], FINAL_SAMPLES)
    elif options.backend == "cuda":
        results = search.run_cuda(defaults)
    else:
        results = search.run(defaults, TILES[:2] if options.dry_run else TILES)
    return case | {"floor_ns": floor_ns, "results": results, "errors": search.errors}


def describe_device(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    versions = {"cuda": torch.version.cuda, "torch": torch.__version__, "triton": sys.modules["triton"].__version__}
    return {"device": name, **versions, "date": date}


def measure(options: argparse.Namespace) -> int:
    device, began = "cpu" if options.dry_run else "cuda", time.monotonic()
    about = {**describe_device(torch.device(device)), "backend": options.backend, "method": __doc__}
    report: dict[str, Any] = {**about, "cases": []}
    worker, context = Worker(device, options.timeout_s, options.backend), multiprocessing.get_context("spawn")
    pool = None if options.dry_run or options.quick or options.backend == "cuda" else context.Pool(min(12, os.cpu_count() or 1))
    try:
        for spec in TINY if options.dry_run else BENCHMARKS:
            case = measure_case(worker, spec, pool, options)
            report["cases"].append(case)
            print_case(case, time.monotonic() - began)
            options.out.write_text(json.dumps(report))
    finally:
        worker.stop()
        if pool:
            pool.terminate()
    print_summary(report)
    return 1 if any("WRONG" in error for case in report["cases"] for error in case["errors"]) else 0


def shape_of_spec(spec: dict[str, Any]) -> Shape:
    batch, q_len, kv_len, topk = (spec[name] for name in ("batchsize", "qseqlen", "kvseqlen", "topk"))
    return Shape(batch, q_len, kv_len, topk, spec.get("numkvheads", 1), spec.get("groupsize", 16))


def apply(report: dict[str, Any], label: str, path: Path) -> int:
    """Replace the backend's entries of `label` in a dispatch table, comments kept; the number of entries."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    yaml, backend = YAML(), report.get("backend", "triton")
    yaml.width = 160
    table = yaml.load(path)
    table["nvfp4-msa"].fa.set_block_style()
    entries = CommentedSeq(entry for entry in table["nvfp4-msa"].get(label, []) if entry["backend"] != backend)
    for case in report["cases"]:
        if case["results"]:
            best = case["results"][0]
            evidence = {"device": report["device"], "date": report["date"][:10], "median_ns": round(best["median_ns"])}
            evidence |= {"floor_ns": round(case["floor_ns"])} if case["floor_ns"] else {}
            shape = flow(list(shape_of_spec(case["spec"])))
            entries.append(CommentedMap(shape=shape, backend=backend, params=flow(best["params"]), evidence=flow(evidence)))
    table["nvfp4-msa"][label] = entries
    yaml.dump(table, path)
    return len(report["cases"])


def flow(value: Any) -> Any:
    """The value in one line of YAML."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    styled = CommentedMap(value) if isinstance(value, dict) else CommentedSeq(value)
    styled.fa.set_flow_style()
    return styled


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("nvfp4.json"), help="where the measurements go")
    parser.add_argument("--quick", action="store_true", help="the defaults alone, without a search")
    parser.add_argument("--backend", choices=BACKENDS, default="triton", help="whose kernel (default triton)")
    parser.add_argument("--timeout-s", type=float, default=20.0, help="limit of one configuration (default 20)")
    parser.add_argument("--setup-s", type=float, default=120.0, help="limit of a case's inputs and oracle (default 120)")
    parser.add_argument("--apply", type=Path, metavar="FILE", help="write measurements into problems/nvfp4_msa/dispatch.yml")
    parser.add_argument("--label", default="H200", help="the device's name in dispatch.yml")
    parser.add_argument("--dry-run", action="store_true", help="a tiny case on a CPU, under TRITON_INTERPRET=1")
    options = parser.parse_args(argv)
    if options.apply:
        count = apply(json.loads(options.apply.read_text()), options.label, PROBLEM / "dispatch.yml")
        print(f"dispatch.yml: {count} entries for {options.label}; now run `make submission`")
        return 0
    if not options.dry_run and not torch.cuda.is_available():
        parser.error("no GPU on this machine; --dry-run goes through the motions on a CPU")
    return measure(options)


if __name__ == "__main__":
    sys.exit(main())
