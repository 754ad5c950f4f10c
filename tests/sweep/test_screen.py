"""gfx950 settings without the card: what must not run is refused, what may run is ranked and called an estimate."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_root import small_root

from kernels.hip_backend import traits_of
from scripts import hip_screen
from sweep.cli import main
from sweep.config import load_config
from sweep.screen import screen_for, toolchain_works
from sweep.variant import Variant

ROOT = Path(__file__).parents[2]
needs_llvm = pytest.mark.skipif(not toolchain_works(), reason="LLVM's gfx950 tools are not installed")
PLAIN = {"format": "fp8", "buffers": 2, "waves_per_simd": 3, "num_kv_splits": 4}


def hip_space(root):
    return [load_config(root / "configs" / "sweep.yml").backends["hip"]]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return small_root(tmp_path_factory.mktemp("root"))


@needs_llvm
def test_impossible_lds_and_what_does_not_compile_never_run(root):
    screen = screen_for(hip_space(root))
    assert screen(Variant("hip", PLAIN)) is None
    assert "local memory" in (screen(Variant("hip", {**PLAIN, "format": "bf16", "tile": 64, "buffers": 3})) or "")
    assert "multiplies 128 tokens at once" in (screen(Variant("hip", {**PLAIN, "fp8_pv": True})) or "")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"vgpr_spills": 12, "scratch_bytes": 48, "lds_bytes": 1024}, "12 VGPRs spilled, 48 bytes of scratch"),
        ({"vgpr_spills": 0, "scratch_bytes": 64, "lds_bytes": 1024}, "64 bytes of scratch"),
        ({"vgpr_spills": 0, "scratch_bytes": 0, "lds_bytes": 200_000}, "200000 bytes of LDS; a compute unit has 163840"),
    ],
)
def test_what_the_compiler_reports_is_judged(monkeypatch, found, reason):
    monkeypatch.setattr(hip_screen, "decode_report", lambda traits: SimpleNamespace(**found))
    assert reason in (hip_screen.fault_of_traits.__wrapped__(traits_of(PLAIN)) or "")


@needs_llvm
def test_other_backends_are_not_screened(root):
    assert screen_for(hip_space(root))(Variant("aiter", {"page_size": 1})) is None


def test_without_the_tools_nothing_is_refused(root, monkeypatch):
    monkeypatch.setattr("sweep.screen.toolchain_works", lambda: False)
    assert screen_for(hip_space(root))(Variant("hip", {"fp8_pv": True})) is None


@pytest.mark.parametrize("package", ["elftools", "msgpack"])
def test_a_sweep_without_the_packages_of_gfx950_does_without_the_screen(package):
    """`make sweep` in a fresh clone: its environment has the extra `sweep` alone."""
    code = f"import sys; sys.modules[{package!r}] = None; import sweep.cli; from sweep.screen import toolchain_works"
    code += "; print(toolchain_works())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_without_the_tools_an_estimate_says_what_to_install(root, monkeypatch, capsys):
    monkeypatch.setattr("sweep.estimate.toolchain_works", lambda: False)
    assert main(["--root", str(root), "--estimate"]) == 2
    assert "make toolchain" in capsys.readouterr().err


@needs_llvm
def test_a_ranking_is_called_an_estimate_and_changes_nothing(root, capsys):
    path = root / "configs" / "task.yml"
    first_case = path.read_text().split("benchmarks:")[0] + (
        'benchmarks:\n  - {"batchsize": 4, "qseqlen": 1, "kvseqlen": 256, "seed": 4217}\n'
    )
    path.write_text(first_case)
    before = (root / "configs" / "dispatch.yml").read_bytes()
    assert main(["--root", str(root), "--estimate", "--preset", "quick"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("ESTIMATE by the emulator's counters") == 2
    assert "at least" in printed
    assert "num_kv_splits=" in printed
    assert (root / "configs" / "dispatch.yml").read_bytes() == before
