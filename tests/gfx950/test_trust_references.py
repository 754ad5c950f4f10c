"""The corpus' expected values agree with Triton's own interpreter: a wrong reference would prove nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).parent / "corpus" / "triton_interpreter.py"


@pytest.mark.slow
def test_references_agree_with_the_interpreter() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) > 50
    assert [r for r in results if r["wrong"]] == []
