"""Peers as submissions: adapters against stand-ins of their packages, turns with entrants that fail, records and tables."""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import reference
from harness import policies
from harness.problem import load_problem
from harness.result import Device
from harness.stats import summarize
from popcorn.cases import parse_cases
from scripts import bench_peers
from scripts.peer_report import geomeans_ns, markdown, record_of_run
from scripts.peer_turns import Entrants, Entry, Turn

ROOT = Path(bench_peers.ROOT)
sys.path.append(str(ROOT / "tests" / "support"))
import peer_standins as standins  # noqa: E402

FP8_REL_L2 = 0.06  # q and KV in e4m3: 2 to 3 % each
BF16_REL_L2 = 6e-3  # the result and, in SDPA, the probabilities in bf16


def load(name: str, folder: Path, on_gpu: bool = True):
    """A peer as the worker imports it; `on_gpu`: it believes that the inputs are there."""
    path = bench_peers.staged(name, folder)[name]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if on_gpu:
        module.need_gpu = lambda data: data[0].device
    return module


def make(batch=2, q_len=1, kv_len=128, seed=1, **more):
    return reference.generate_input(batchsize=batch, qseqlen=q_len, kvseqlen=kv_len, seed=seed, device="cpu", **more)


def rel_l2(out: torch.Tensor, data) -> float:
    """Against fp64 attention on the bf16 rows."""
    q, kv_data, qo_indptr, kv_indptr, config = data
    expected = torch.zeros(*q.shape[:2], 512, dtype=torch.float64)
    for i in range(len(kv_indptr) - 1):
        k = kv_data["bf16"][kv_indptr[i] : kv_indptr[i + 1], 0].double()
        rows = slice(qo_indptr[i], qo_indptr[i + 1])
        if len(k):
            expected[rows] = torch.softmax(q[rows].double() @ k.T * config["sm_scale"], dim=-1) @ k[:, :512]
    assert (out.shape, out.dtype) == (expected.shape, torch.bfloat16)
    return float((out.double() - expected).norm() / expected.norm())


@pytest.fixture
def hopper(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))


PACKAGES = {
    "flashmla": (standins.vllm, FP8_REL_L2),
    "flashmla of sglang": (standins.sglang, FP8_REL_L2),
    "flashinfer_mla": (standins.flashinfer, BF16_REL_L2),
    "flaggems_mla": (standins.flag_gems, BF16_REL_L2),
    "tilelang_mla": (standins.tilelang, BF16_REL_L2),
    "sdpa": (None, BF16_REL_L2),
}


def with_package(name, monkeypatch, folder):
    install, _ = PACKAGES[name]
    if install is not None:
        install(*((monkeypatch, folder) if install is standins.tilelang else (monkeypatch,)))
    return load(name.split()[0], folder)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_peer_computes_what_its_package_does_on_contents_that_change(name, monkeypatch, tmp_path, hopper):
    peer = with_package(name, monkeypatch, tmp_path)
    for seed in (1, 2, 3):  # plans are kept, contents and addresses are not
        data = make(seed=seed)
        assert rel_l2(peer.custom_kernel(data), data) < PACKAGES[name][1]
    assert len(peer.PLANS) <= 1
    assert peer.describe(data)["params"]["format"] in ("bf16", "fp8")


@pytest.mark.parametrize("name", ["flashmla", "flashinfer_mla", "sdpa"])
def test_several_query_tokens(name, monkeypatch, tmp_path, hopper):
    data = make(q_len=3)
    assert rel_l2(with_package(name, monkeypatch, tmp_path).custom_kernel(data), data) < PACKAGES[name][1]


@pytest.mark.parametrize("name", ["flaggems_mla", "tilelang_mla"])
def test_a_peer_without_a_kernel_for_several_query_tokens_says_so(name, monkeypatch, tmp_path, hopper):
    peer = with_package(name, monkeypatch, tmp_path)
    with pytest.raises(peer.Unsupported, match="query token"):
        peer.custom_kernel(make(q_len=2))


def test_a_page_that_is_not_filled(monkeypatch, tmp_path, hopper):
    data = make(kv_len=100)
    with pytest.raises(ValueError, match="kv length 100: its pages hold 64 tokens"):
        with_package("flashmla", monkeypatch, tmp_path).custom_kernel(data)
    assert rel_l2(with_package("flashinfer_mla", monkeypatch, tmp_path).custom_kernel(data), data) < BF16_REL_L2


@pytest.mark.parametrize("name", [name for name in PACKAGES if name != "sdpa"])
def test_ragged_lengths_would_have_to_be_planned_in_the_timed_call(name, monkeypatch, tmp_path, hopper):
    with pytest.raises(ValueError, match="planning them would be part of every timed call"):
        with_package(name, monkeypatch, tmp_path).custom_kernel(make(batch=3, kvmin=1))


def test_sdpa_takes_any_lengths(tmp_path):
    data = make(batch=4, kvmin=0, kv_len=70, q_len=2)
    assert rel_l2(load("sdpa", tmp_path).custom_kernel(data), data) < BF16_REL_L2


@pytest.mark.parametrize("name", [name for name in PACKAGES if name not in ("sdpa", "flashmla of sglang")])
def test_a_peer_that_is_not_installed_says_what_to_install(name, tmp_path):
    with pytest.raises(ImportError, match="pip install"):
        load(name, tmp_path)


def test_a_kernel_for_gpus_refuses_a_cpu(monkeypatch, tmp_path):
    standins.flashinfer(monkeypatch)
    with pytest.raises(ValueError, match="needs a GPU; the inputs are on cpu"):
        load("flashinfer_mla", tmp_path, on_gpu=False).custom_kernel(make())


# Turns: cheap submissions of a cheap problem
DOUBLING = ROOT / "tests" / "harness" / "doubling"
GOOD = "def custom_kernel(data):\n    return data[0] * 2\ndef describe(data):\n    return {'backend': 'good', 'params': {}}\n"
CODES = {
    "wrong": "def custom_kernel(data):\n    return data[0] * 3\n",
    "raising": "def custom_kernel(data):\n    raise ValueError('boom')\n",
    "crashing": "import os\ndef custom_kernel(data):\n    os._exit(3)\n",
    "absent": "import no_such_package\n",
}
REASONS = {
    "wrong": "fails the official check: values differ",
    "raising": "fails: ValueError: boom",
    "crashing": "fails: the submission ended the process with exit status 3",
}


@pytest.mark.parametrize("order", [["good", *CODES, "better"], [*CODES, "good", "better"]], ids=["first good", "first bad"])
def test_nobody_stops_the_others(tmp_path, order):
    files = {}
    for name in order:
        files[name] = tmp_path / f"{name}.py"
        files[name].write_text(CODES.get(name, GOOD))
    policy = policies.robust("benchmark", Device("a CPU", "cpu", "x86_64"), 0.1)
    cases = tuple(parse_cases("size: 8; seed: 1\n", "test"))
    (tmp_path / "scratch").mkdir()
    entrants = Entrants(load_problem(DOUBLING), policy, torch.device("cpu"), cases, files, tmp_path / "scratch", 300.0)
    with entrants:
        assert list(entrants.missing) == ["absent"]
        assert "No module named 'no_such_package'" in entrants.missing["absent"]
        for case in cases:
            turn = entrants.take_turns(case)
            assert list(turn.entries) == [name for name in order if name != "absent"]
            assert {name: turn.entries[name].failure for name in REASONS} == REASONS
            good, better = (turn.entries[name] for name in ("good", "better"))
            assert good.timing is not None
            assert better.timing is not None
            assert good.timing.runs == better.timing.runs >= 2
            assert (good.strict, good.kv_format, good.backend) == (True, "fp32", "good")


def test_the_command_end_to_end_on_a_cpu(tmp_path, capsys):
    options = ["--device", "cpu", "--budget-s", "0.2", "--peers", "sdpa,flashmla", "--cases"]
    options += ["batchsize: 1; qseqlen: 1; kvseqlen: 64; seed: 3"]
    code = bench_peers.main([*options, "--json", str(tmp_path / "p.json"), "--markdown", str(tmp_path / "p.md")])
    said = capsys.readouterr().out
    assert code == 0, said
    record = json.loads((tmp_path / "p.json").read_text())
    entries = record["cases"][0]["entries"]
    assert list(entries) == ["ours", "sdpa"]
    assert entries["sdpa"]["kv_format"] == "bf16"
    assert entries["sdpa"]["ours_over_this"] is None or entries["sdpa"]["ours_over_this"]["ratio"] > 0
    assert list(record["missing"]) == ["flashmla"]
    assert "no FlashMLA with fp8 KV" in (tmp_path / "p.md").read_text()
    assert "| 1 x 1 x 64 |" in said


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--peers", "cublas"], 3, "--peers cublas: no such peer; there are flaggems_mla, flashinfer_mla"),
        (["--submission", "nowhere.py"], 3, "nowhere.py: no such submission file"),
        (["--cases", "batchsize: x y"], 113, "is not a case"),
    ],
)
def test_mistakes_are_one_line(options, code, message, capsys):
    assert bench_peers.main(["--device", "cpu", *options]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


# Records and tables: no worker needed
def entry(median_ns: int, **more) -> Entry:
    return Entry(timing=summarize([median_ns] * 10), strict=True, kv_format="fp8", **more)


def turns() -> list[Turn]:
    (first, second) = parse_cases("batchsize: 4; qseqlen: 1; kvseqlen: 1024; seed: 1\nbatchsize: 9; seed: 2\n", "test")
    return [
        Turn(first, {"ours": entry(10_000), "peer": entry(20_000), "fails": Entry("fails: boom")}),
        Turn(second, {"ours": entry(40_000), "peer": entry(20_000), "fails": entry(1_000)}),
    ]


def test_only_who_was_measured_everywhere_has_a_geomean():
    found = geomeans_ns(turns())
    assert found["ours"] == pytest.approx(20_000)
    assert found["peer"] == pytest.approx(20_000)
    assert found["fails"] is None


def test_the_record_and_its_table():
    device = Device("NVIDIA H200", "cuda", "sm_90", torch="2.11")
    record = record_of_run(device, "official", 5.0, turns(), {"gone": "no module"})
    assert record["cases"][0]["entries"]["peer"]["ours_over_this"]["change"] == "faster"
    assert record["cases"][1]["entries"]["peer"]["ours_over_this"]["ratio"] == pytest.approx(2.0)
    assert json.loads(json.dumps(record))["schema_version"] == 1
    table = markdown(record, ["ours", "peer", "fails"])
    assert "| 4 x 1 x 1024 | 10.0 fp8 | 20.0 fp8 | – |" in table
    assert "| geomean | 20.0 | 20.0 | – |" in table
    assert "- gone: not available: no module" in table
    assert "- fails, 4 x 1 x 1024: fails: boom" in table
    assert len({line.count("|") for line in table.splitlines() if line.startswith("|")}) == 1
