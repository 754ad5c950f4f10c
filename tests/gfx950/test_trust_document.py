"""The generated tables of docs/emulator-trust.md are what the corpus gives today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from corpus import aiter_wheel, flydsl_problems, wheels

triton = pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "emulator-trust.md"
SCRIPT = ROOT / "scripts" / "emulator_trust.py"


@pytest.mark.slow
def test_tables_are_current(toolchain: None) -> None:
    if f"Triton {triton.__version__}," not in DOCUMENT.read_text():
        pytest.skip(f"the tables were made with another Triton than {triton.__version__}, which compiles other code")
    try:
        flydsl_problems.code_objects()
        aiter_wheel.wheel()
    except wheels.Unreachable as reason:
        pytest.skip(str(reason))
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
