"""A copy of what a sweep reads and writes of the repository, with a small space and a small case."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
CASE = "batchsize: 1; qseqlen: 1; kvseqlen: 64; seed: 3"
SHAPE = [1, 1, 64, 16]
PRESET = {
    "trials": 3, "batch": 3, "race_samples": [2, 2], "refine_rounds": 1, "finalists": 2, "final_samples": 6, "duel_samples": 8,
}  # fmt: skip


def small_root(folder: Path, entry: dict | None = None) -> Path:
    """The copy. `entry`: params of the torch backend that the table gives the small case's shape on a CPU."""
    for name in ("configs", "kernels"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("task.py", "reference.py", "utils.py", "eval.py", "submission.py"):
        shutil.copy(ROOT / name, folder / name)
    config = yaml.safe_load((ROOT / "configs" / "sweep.yml").read_text())
    config["presets"] = {"quick": PRESET}
    config["backends"]["torch"]["params"] = {"format": ["bf16", "fp8"], "chunk_tokens": [32, 64]}
    (folder / "configs" / "sweep.yml").write_text(yaml.safe_dump(config))
    if entry is not None:
        with (folder / "configs" / "dispatch.yml").open("a") as file:
            file.write(f"  cpu:\n  - shape: {SHAPE}\n    backend: torch  # said by hand\n    params: {entry}\n")
    return folder
