#!/usr/bin/env python3
"""Sweep the Triton backend's parameters over the official shapes on this machine's GPU; needs torch and triton only.

    python3 scripts/tune_triton.py --out tuned.json     measure (about 4 minutes on an H200)
    python scripts/tune_triton.py --apply tuned.json    write the results into configs/dispatch.yml; needs ruamel.yaml
    TRITON_INTERPRET=1 python scripts/tune_triton.py --dry-run    the same path on a CPU; its times mean nothing

Times are cold: the L2 is evicted by reading 256 MiB, the launch is hidden behind a device-side sleep, median of the samples.
Each shape is screened with few samples; the best of each format are measured again, interleaved, with many.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kernels.layout import Shape, shape_of  # noqa: E402
from kernels.torch_backend import TorchBackend  # noqa: E402
from kernels.triton_backend import TritonBackend, TritonPlan, ceil_div  # noqa: E402

OFFICIAL = [Shape(batch, 1, kv_len, 16) for batch in (4, 32, 64, 256) for kv_len in (1024, 8192)]
TINY = [Shape(2, 1, 70, 16)]
# block_n, num_warps, num_stages, maxnreg (None: the compiler decides)
TILES = {
    "fp8": [
        (16, 4, 4, None),
        (32, 4, 3, None),
        (32, 4, 4, None),
        (32, 8, 3, None),
        (32, 8, 4, None),
        (64, 4, 2, None),
        (64, 4, 3, None),
        (64, 4, 4, None),
        (64, 8, 2, None),
        (64, 8, 3, None),
        (64, 8, 4, None),
        (64, 8, 3, 128),
        (128, 8, 2, None),
        (128, 8, 3, None),
    ],
    "bf16": [
        (32, 4, 3, None),
        (32, 4, 4, None),
        (32, 8, 3, None),
        (32, 8, 4, None),
        (64, 4, 2, None),
        (64, 4, 3, None),
        (64, 8, 2, None),
        (64, 8, 3, None),
        (64, 8, 4, None),
        (128, 8, 2, None),
    ],
}
# combine_block_d, combine_warps, overlap
COMBINES = [*itertools.product((64, 128, 256, 512), (1, 2, 4), (True,)), (128, 1, False), (128, 4, False), (512, 4, False)]
WAVES = (0.25, 0.5, 1, 1.5, 2, 3, 4)  # programs per multiprocessor
SCREEN_SAMPLES, FINAL_SAMPLES, FINALISTS = 9, 41, 6
EVICT_FLOATS = 64 << 20  # 256 MiB
SLEEP_CYCLES = 150_000
# Honest arithmetic noise is 2e-3 (bf16) to 4e-3 (fp8, accumulated over tiles) per row; a wrong candidate is off by far more.
MAX_REL_L2 = 1e-2


def make_data(shape: Shape, device: torch.device, seed: int, lengths: list[int] | None = None) -> tuple:
    """Inputs of the task without the mxfp4 cache: standard normal, sequences of `lengths`, by default all `kv_len` long."""
    generator = torch.Generator(device).manual_seed(seed)
    lengths = lengths or [shape.kv_len] * shape.batch
    total = sum(lengths)
    q = torch.randn(shape.batch * shape.q_len, shape.heads, 576, generator=generator, device=device).bfloat16()
    kv = torch.empty(total, 1, 576, dtype=torch.bfloat16, device=device)
    fp8 = torch.empty(total, 1, 576, dtype=torch.float8_e4m3fn, device=device)
    scale = torch.full((1,), 6.0 / 448, device=device)  # normal values of this many draws stay within 6.0
    for rows in kv.split(1 << 18):
        rows.copy_(torch.randn(rows.shape, generator=generator, device=device).clamp_(-6, 6))
    for rows, target in zip(kv.split(1 << 18), fp8.split(1 << 18), strict=True):
        target.copy_((rows.float() / scale).clamp_(-448, 448))
    qo_indptr = torch.arange(shape.batch + 1, dtype=torch.int32, device=device) * shape.q_len
    kv_indptr = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)
    config = {"q_seq_len": shape.q_len, "kv_seq_len": max(lengths), "sm_scale": 1 / 24}
    return q, {"bf16": kv, "fp8": (fp8, scale)}, qo_indptr, kv_indptr, config


def references(data: Any) -> dict[str, torch.Tensor]:
    """fp32 outputs per KV format."""
    torch.backends.cuda.matmul.allow_tf32 = False
    plans = {name: TorchBackend().plan(data, {"format": name, "chunk_tokens": 1 << 16}) for name in TILES}
    return {name: plan(data).float() for name, plan in plans.items()}


def worst_rel_l2(out: torch.Tensor, reference: torch.Tensor) -> float:
    """Largest relative L2 error of a row; infinite if anything is NaN."""
    error = (out.float() - reference).norm(dim=-1) / reference.norm(dim=-1).clamp_min(1e-20)
    return float(error.nan_to_num(float("inf")).max())


class ColdClock:
    """Cold times of a call in nanoseconds; on a CPU plain host times, so that the dry run can go through the motions."""

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


def tile_params(kv_format: str, tile: tuple, base: dict[str, Any]) -> dict[str, Any]:
    block_n, num_warps, num_stages, maxnreg = tile
    params = base | {"format": kv_format, "block_n": block_n, "num_warps": num_warps, "num_stages": num_stages}
    return params | ({"maxnreg": maxnreg} if maxnreg else {})


def split_counts(shape: Shape, block_n: int, multiprocessors: int) -> list[int]:
    """Split counts that fill the GPU about WAVES times over, and the powers of two between."""
    tiles = ceil_div(shape.kv_len, block_n)
    fills = [round(waves * multiprocessors / shape.batch) for waves in WAVES]
    powers = [1 << n for n in range(8) if fills[0] <= 1 << n <= fills[-1]]
    return sorted({max(1, min(count, tiles, 128)) for count in fills + powers})


def compile_one(params: dict[str, Any]) -> None:
    """Fill Triton's cache on disk; runs in a process of its own. Failures are left for the sweep to meet and report."""
    data: Any = make_data(Shape(1, 1, 64, 16), torch.device("cuda"), 0)
    with contextlib.suppress(Exception):
        TritonPlan(data, params)


def compile_all(candidates: list[dict[str, Any]]) -> None:
    """Compile what the sweep will need on all cores: decode kernels differ only in one split or more, combines in the count."""
    unique = {json.dumps(params, sort_keys=True): params for params in candidates}
    workers = min(12, os.cpu_count() or 1)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for done, _ in enumerate(pool.imap_unordered(compile_one, unique.values(), chunksize=1), 1):
            if done % 20 == 0 or done == len(unique):
                print(f"  compiled {done}/{len(unique)}", flush=True)


class Sweep:
    """Candidates of one shape: correct ones are timed, the best are timed again."""

    def __init__(self, shape: Shape, device: torch.device, clock: ColdClock) -> None:
        self.shape = shape
        self.clock = clock
        self.data: Any = make_data(shape, device, seed=1000 + shape.batch + shape.kv_len)
        self.reference = references(self.data)
        self.base = TritonBackend().default_params(shape, device)
        self.rejected: list[str] = []

    def plan(self, params: dict[str, Any]) -> TritonPlan | None:
        """A checked plan, or None with the reason noted."""
        label = " ".join(f"{key}={value}" for key, value in params.items())
        try:
            plan = TritonPlan(self.data, params)
        except Exception as error:  # a compiler failure rejects one candidate, not the sweep
            self.rejected.append(f"{label}: {type(error).__name__}: {str(error)[:120]}")
            return None
        if plan.params != params:
            self.rejected.append(f"{label}: needs more shared memory than there is")
            return None
        plan.out.fill_(float("nan"))
        error = worst_rel_l2(plan(self.data), self.reference[params["format"]])
        if error > MAX_REL_L2:
            self.rejected.append(f"{label}: WRONG, relative L2 {error:.2e}")
            return None
        return plan

    def time(self, candidates: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
        """Results of one interleaved run, fastest first."""
        plans = [plan for plan in map(self.plan, candidates) if plan]
        samples = self.clock.samples_ns([lambda plan=plan: plan(self.data) for plan in plans], count)
        results = [
            {"shape": list(self.shape), "params": plan.params, "median_ns": statistics.median(times), "samples_ns": times}
            for plan, times in zip(plans, samples, strict=True)
        ]
        return sorted(results, key=lambda result: result["median_ns"])

    def screen(self, candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each candidate alone, so that only one workspace exists at a time."""
        results = [result for params in candidates for result in self.time([params], SCREEN_SAMPLES)]
        return sorted(results, key=lambda result: result["median_ns"])


def tune_shape(sweep: Sweep, multiprocessors: int, every: int) -> dict[str, list[dict[str, Any]]]:
    """Per format: the finalists, fastest first. Only each `every`-th candidate is tried."""
    finals = {}
    for kv_format in TILES:
        screened = sweep.screen(shape_candidates(sweep.shape, kv_format, sweep.base, multiprocessors)[::every])
        if screened and screened[0]["params"]["num_kv_splits"] > 1:
            screened += sweep.screen(combine_candidates(screened[0]["params"])[::every])
            screened.sort(key=lambda result: result["median_ns"])
        finals[kv_format] = sweep.time([result["params"] for result in screened[:FINALISTS]], FINAL_SAMPLES)
    return finals


def shape_candidates(shape: Shape, kv_format: str, base: dict[str, Any], multiprocessors: int) -> list[dict[str, Any]]:
    return [
        tile_params(kv_format, tile, base) | {"num_kv_splits": splits}
        for tile in TILES[kv_format]
        for splits in split_counts(shape, tile[0], multiprocessors)
    ]


def combine_candidates(params: dict[str, Any]) -> list[dict[str, Any]]:
    overlaps = (True, False) if params["overlap"] else (False,)
    settings = [(block_d, warps, overlap) for block_d, warps, overlap in COMBINES if overlap in overlaps]
    return [params | dict(zip(("combine_block_d", "combine_warps", "overlap"), setting, strict=True)) for setting in settings]


def check_ragged(device: torch.device) -> None:
    """Shapes that the sweep does not time: ragged, empty and long sequences, several query tokens, other head counts."""
    shapes = [(q_len, heads) for q_len in (1, 2, 4) for heads in (16, 32, 128)] + [(1, 5)]
    lengths = [1000, 33, 1, 0, 64, 65, 8192, 129] if device.type == "cuda" else [40, 0, 33]
    backend = TritonBackend()
    worst = 0.0
    for (q_len, heads), kv_format in itertools.product(shapes if device.type == "cuda" else shapes[:1], TILES):
        shape = Shape(len(lengths), q_len, max(lengths), heads)
        data: Any = make_data(shape, device, seed=q_len + heads, lengths=lengths)
        reference = references(data)[kv_format]
        defaults = backend.default_params(shape_of(data), device) | {"format": kv_format}
        for splits, convert in itertools.product((1, 3, 16) if device.type == "cuda" else (3,), {defaults["convert"], "shift"}):
            plan = TritonPlan(data, defaults | {"num_kv_splits": splits, "convert": convert})
            plan.out.fill_(float("nan"))
            error = worst_rel_l2(plan(data), reference)
            worst = max(worst, error)
            if error > MAX_REL_L2:
                print(f"  WRONG: q_len {q_len} heads {heads} {kv_format} splits {splits} {convert}: relative L2 {error:.2e}")
    print(f"ragged, empty, q_len 1-4, heads 5-128: worst relative L2 {worst:.2e} (limit {MAX_REL_L2})", flush=True)


def host_cost_ns(data: Any, params: dict[str, Any]) -> float:
    """Host time of one steady-state call of the plan, launches queued and not waited for."""
    plan = TritonPlan(data, params)
    for _ in range(20):
        plan(data)
    times = [host_ns(lambda: plan(data)) for _ in range(200)]
    return statistics.median(times)


def describe_device(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    triton_version = sys.modules["triton"].__version__
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"device": name, "cuda": torch.version.cuda, "torch": torch.__version__, "triton": triton_version, "date": date}


def measure(options: argparse.Namespace) -> None:
    device = torch.device("cpu" if options.dry_run else "cuda")
    multiprocessors = 4 if options.dry_run else torch.cuda.get_device_properties(device).multi_processor_count
    shapes = TINY if options.dry_run else OFFICIAL
    began = time.monotonic()
    if not options.dry_run:
        defaults = {shape: TritonBackend().default_params(shape, device) for shape in shapes}
        compile_all(list(all_compilations(defaults, multiprocessors)))
        print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
    check_ragged(device)
    clock = ColdClock(device)
    report: dict[str, Any] = describe_device(device) | {"method": __doc__, "results": {}, "rejected": []}
    for shape in shapes:
        sweep = Sweep(shape, device, clock)
        finals = tune_shape(sweep, multiprocessors, every=12 if options.dry_run else 1)
        report["results"][" ".join(map(str, shape))] = finals
        report["rejected"] += sweep.rejected
        print_shape(shape, finals, time.monotonic() - began)
        options.out.write_text(json.dumps(report))
    best = min(finals["fp8"] + finals["bf16"], key=lambda result: result["median_ns"])
    print(f"host time per call of the plan {host_cost_ns(sweep.data, best['params']) / 1e3:.1f} us")
    print_summary(report)


def all_compilations(defaults: dict[Shape, dict[str, Any]], multiprocessors: int) -> Any:
    """One candidate for each kernel that the sweep will ask for."""
    for kv_format, tiles in TILES.items():
        for tile in tiles:
            for splits in (1, 2):
                yield tile_params(kv_format, tile, next(iter(defaults.values()))) | {"num_kv_splits": splits}
    for shape, base in defaults.items():
        counts = {splits for block_n in (16, 32, 64, 128) for splits in split_counts(shape, block_n, multiprocessors)}
        for splits in counts - {1}:
            yield from combine_candidates(tile_params("bf16", TILES["bf16"][0], base) | {"num_kv_splits": splits})


def print_shape(shape: Shape, finals: dict[str, list[dict[str, Any]]], elapsed_s: float) -> None:
    print(f"{shape.batch} x {shape.kv_len}, q_len {shape.q_len}, {shape.heads} heads   ({elapsed_s:.0f} s)")
    for kv_format, results in finals.items():
        for result in results[:3]:
            params = " ".join(f"{key}={value}" for key, value in result["params"].items() if key != "format")
            print(f"  {kv_format:5} {result['median_ns'] / 1e3:8.2f} us  {params}", flush=True)


def print_summary(report: dict[str, Any]) -> None:
    by_format = {kv_format: [] for kv_format in TILES}
    for finals in report["results"].values():
        for kv_format, results in finals.items():
            by_format[kv_format].append(results[0]["median_ns"] / 1e3 if results else math.nan)
    by_format["best"] = [min(times) for times in zip(*by_format.values(), strict=True)]
    print("shapes (batch q_len kv_len heads): " + ", ".join(report["results"]))
    for kv_format, times in by_format.items():
        columns = "".join(f"{value:9.1f}" for value in times)
        print(f"{kv_format:5}{columns}   geomean {statistics.geometric_mean(times):.2f} us")
    wrong = [line for line in report["rejected"] if "WRONG" in line]
    print(f"{len(report['rejected'])} candidates rejected, {len(wrong)} of them for wrong results")
    print("\n".join(wrong[:20]))


def apply(path: Path, label: str) -> None:
    """Replace the Triton entries of `label` in configs/dispatch.yml, comments kept."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    report = json.loads(path.read_text())
    table_path = ROOT / "configs" / "dispatch.yml"
    yaml = YAML()
    yaml.width = 160
    table = yaml.load(table_path)
    others = [entry for entry in table["amd-mixed-mla"].get(label, []) if entry["backend"] != "triton"]
    entries = CommentedSeq(others)
    for finals in report["results"].values():
        best = min(itertools.chain(*finals.values()), key=lambda result: result["median_ns"])
        evidence = {"device": report["device"], "date": report["date"][:10], "median_ns": round(best["median_ns"])}
        entry = CommentedMap(shape=flow(best["shape"]), backend="triton", params=flow(best["params"]), evidence=flow(evidence))
        entries.append(entry)
    table["amd-mixed-mla"][label] = entries
    yaml.dump(table, table_path)
    print(f"{table_path.name}: {len(report['results'])} entries for {label}; now run `make submission`")


def flow(value: Any) -> Any:
    """The value in one line of YAML."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    styled = CommentedMap(value) if isinstance(value, dict) else CommentedSeq(value)
    styled.fa.set_flow_style()
    return styled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("tuned.json"), help="where the measurements go")
    parser.add_argument("--apply", type=Path, metavar="FILE", help="write measurements into configs/dispatch.yml")
    parser.add_argument("--label", default="H200", help="the device's name in dispatch.yml")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on a CPU, under TRITON_INTERPRET=1")
    options = parser.parse_args()
    if options.apply:
        apply(options.apply, options.label)
    elif not options.dry_run and not torch.cuda.is_available():
        parser.error("no GPU on this machine; --dry-run goes through the motions on a CPU")
    else:
        measure(options)


if __name__ == "__main__":
    main()
