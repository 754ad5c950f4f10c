"""Files that are never seen half written."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Replace the file at `path` atomically: readers see the old text or the new one, never a part. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
