"""Texts that are compared with a file; KERNELPROOF_UPDATE_SNAPSHOTS=1 rewrites the files, for a look at git's diff."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "support" / "snapshots"


def check_snapshot(name: str, text: str) -> None:
    """Raises AssertionError unless `text` is what the file holds, byte for byte."""
    path = FOLDER / name
    if os.environ.get("KERNELPROOF_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
    assert text == path.read_bytes().decode(), f"not what {path} holds; KERNELPROOF_UPDATE_SNAPSHOTS=1 accepts it"
