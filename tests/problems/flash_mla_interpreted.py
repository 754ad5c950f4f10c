"""Runs in a process of its own with TRITON_INTERPRET=1: puts probes to versions of kernels/, edited as text, not on disk.

stdin: [{"edits": [[file, old, new], ...], "probes": [[name, keywords], ...]}, ...]; stdout: a list of complaints for each.
"""

import json
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def edited_copy(edits, folder):
    """kernels/ with `old` replaced by `new`; old has to occur exactly once, or the edit means nothing any more."""
    shutil.copytree(ROOT / "kernels", folder / "kernels", ignore=shutil.ignore_patterns("__pycache__", "hip", "cpp"))
    (folder / "problems" / "flash_mla").mkdir(parents=True)
    shutil.copy(ROOT / "problems" / "flash_mla" / "dispatch.yml", folder / "problems" / "flash_mla")
    for name, old, new in edits:
        path = folder / "kernels" / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name}: {text.count(old)} places read {old!r}"
        path.write_text(text.replace(old, new))


def complaint(name, keywords):
    from flash_mla_probes import PROBES

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return PROBES[name](**keywords)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def ask(version):
    with tempfile.TemporaryDirectory() as scratch:
        edited_copy(version["edits"], Path(scratch))
        for module in [name for name in sys.modules if name.partition(".")[0] == "kernels"]:
            del sys.modules[module]
        sys.path.insert(0, scratch)
        try:
            return [complaint(name, keywords) for name, keywords in version["probes"]]
        finally:
            sys.path.remove(scratch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([ask(version) for version in json.load(sys.stdin)]))
