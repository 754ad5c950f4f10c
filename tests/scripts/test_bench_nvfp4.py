"""The benchmark of the NVFP4 kernel, without a GPU: its cases, its way with configurations that hang, and what it writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from popcorn.taskfile import load_task_file
from scripts import bench_nvfp4
from scripts.bench_nvfp4 import PROBLEM, Search, Worker

ROOT = Path(__file__).resolve().parents[2]


def test_the_cases_are_the_benchmarks_of_the_problem():
    assert [case.spec for case in load_task_file(PROBLEM / "task.yml").benchmarks] == bench_nvfp4.BENCHMARKS


def test_every_tile_divides_a_page():
    for num_warps, keys, num_stages, _ in bench_nvfp4.TILES:
        assert 128 % (num_warps * keys) == 0
        assert num_stages > 1


@pytest.mark.parametrize("near", [1, 4, 8])
def test_splits_stay_near_the_default_and_never_exceed_the_blocks(near):
    splits = bench_nvfp4.split_candidates({"topk": 6, "kvseqlen": 32768}, near)
    assert near in splits or near > 6
    assert all(near / 4 <= count <= min(6, near * 4) for count in splits)


class ScriptedWorker:
    """Answers measurements from a table: splits -> nanoseconds, or an error."""

    device = "cpu"

    def __init__(self, median_ns):
        self.median_ns, self.asked = median_ns, []

    def ask(self, method, spec, params, count):
        self.asked.append(params)
        answer = self.median_ns(params)
        return {"error": answer} if isinstance(answer, str) else {"median_ns": answer, "samples_ns": [answer]}


def test_the_search_of_the_cuda_kernel_tries_every_shape_of_blocks_and_splits_around_the_default():
    worker = ScriptedWorker(lambda params: 1000 + 100 * abs(params["num_kv_splits"] - 8) + params["stages"])
    search = Search(worker, {"topk": 16, "kvseqlen": 32768}, None)
    best = search.run_cuda({"num_kv_splits": 4, "teams": 1, "stages": 3, "blocks": 3})[0]["params"]
    assert best == {"num_kv_splits": 8, "teams": 1, "stages": 2, "blocks": 4}
    assert not search.errors


def test_the_search_finds_the_best_split_of_the_best_tile_and_drops_what_fails():
    def median_ns(params):
        if params["num_warps"] == 1:
            return "WRONG: rows fail"
        return 1000 + 100 * abs(params["num_kv_splits"] - 8) + params["keys"] + (-50 if params["unpack"] == "shift" else 0)

    worker = ScriptedWorker(median_ns)
    defaults = bench_nvfp4.tile_params((4, 32, 3, None), 4, "cvt")
    search = Search(worker, {"topk": 16, "kvseqlen": 32768}, None)
    best = search.run(defaults, bench_nvfp4.TILES)[0]
    assert (best["params"]["num_kv_splits"], best["params"]["keys"], best["params"]["unpack"]) == (8, 16, "shift")
    assert all("num_warps=1" in error for error in search.errors)
    rounds = [json.dumps(params, sort_keys=True) for params in worker.asked]
    assert len(rounds) < 60


def hang(connection, device, backend):
    while True:
        method, _ = connection.recv()
        if method == "floor_ns":
            os._exit(1)
        if method == "defaults":
            connection.send({"fine": device})


def test_a_configuration_that_hangs_or_crashes_costs_its_limit_and_not_the_run(monkeypatch):
    monkeypatch.setattr(bench_nvfp4, "serve", hang)
    worker = Worker("cpu", timeout_s=0.1)
    try:
        assert worker.ask("measure", {}, {}, 1) == {"error": "no answer within 0.1 s"}
        assert worker.ask("defaults", {}, timeout_s=300) == {"fine": "cpu"}
        assert worker.ask("floor_ns", {}, timeout_s=300) == {"error": "the process ended"}
        assert worker.ask("defaults", {}, timeout_s=300) == {"fine": "cpu"}
    finally:
        worker.stop()
    assert worker.process is None


def test_what_is_applied_can_be_read_and_keeps_comments_and_other_backends(tmp_path):
    pytest.importorskip("ruamel.yaml")
    path = tmp_path / "dispatch.yml"
    path.write_text((PROBLEM / "dispatch.yml").read_text())
    params = bench_nvfp4.tile_params((4, 32, 3, None), 4, "cvt")
    case = {"spec": bench_nvfp4.BENCHMARKS[4], "floor_ns": 2e4, "results": [{"params": params, "median_ns": 25000.4}]}
    report = {"device": "NVIDIA H200", "date": "2026-11-30T00:00:00", "cases": [case]}
    for _ in range(2):
        assert bench_nvfp4.apply(report, "another device", path) == 1
    text = path.read_text()
    assert text.startswith("# Tuned parameters")
    table = yaml.safe_load(text)["nvfp4-msa"]
    assert table["H200"] == yaml.safe_load((PROBLEM / "dispatch.yml").read_text())["nvfp4-msa"]["H200"]
    (entry,) = table["another device"]
    assert entry["shape"] == [64, 1, 131072, 16, 4, 16]
    assert (entry["backend"], entry["params"]) == ("triton", params)
    assert entry["evidence"]["median_ns"] == 25000


def test_without_a_gpu_it_says_so(capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit):
        bench_nvfp4.main([])
    assert "no GPU on this machine" in capsys.readouterr().err


@pytest.mark.slow
def test_the_dry_run_goes_through_the_motions(tmp_path):
    command = [sys.executable, "-W", "ignore", "scripts/bench_nvfp4.py", "--dry-run", "--out", str(tmp_path / "x.json")]
    command += ["--timeout-s", "300"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    (case,) = json.loads((tmp_path / "x.json").read_text())["cases"]
    assert case["results"][0]["median_ns"] > 0
    assert not case["errors"]
