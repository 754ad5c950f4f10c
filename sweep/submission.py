"""The submission that a sweep measures: the bundled kernels, and a tail that lets a variant take the table's place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from scripts import bundle
from sweep.errors import KernelsNotLoaded
from sweep.variant import Shape, Variant

CONFIG_INDEX = 4  # of `config` in the input tuple
CHOICE_KEY = "sweep_variant"
CHOICE_BYTES = 2048  # one size for all, so that another variant is only new contents of the same buffers
TABLE = "configs/dispatch.yml"

# What follows the bundle: another SELECTION takes the place of kernels/dispatch.py's.
TAIL = '''
# ---- appended for a sweep: a variant takes the place of the dispatch table ----
import json as sweep_json

SWEEP_VARIANTS = sweep_json.loads(r"""{variants}""")


def sweep_variant_of(data):
    """JSON of the variant that serves `data`: named by the input, or by SWEEP_VARIANTS for its shape; "" for the table's own."""
    named = data[{config}].get("{key}")
    if named is not None:
        return bytes(named.numpy()).rstrip(b" ").decode()
    return SWEEP_VARIANTS.get("x".join(map(str, shape_of(data))), "")


class SweepSelection(Selection):
    def entry_for(self, data, names):
        variant = sweep_variant_of(data)
        if not variant:
            return super().entry_for(data, names)
        entry = sweep_json.loads(variant)
        if entry["backend"] not in names:
            raise BackendError(f"{{entry['backend']}} is not among the backends that can be used here: {{', '.join(names)}}")
        return entry


def sweep_plan_key(data):
    return (sweep_variant_of(data), *plan_key(data))


SELECTION = SweepSelection(SELECTION.backends, SELECTION.table, shape_of, sweep_plan_key, SELECTION.check)
'''


def submission_text(root: Path, problem: str, choices: Mapping[Shape, Variant] | None = None) -> str:
    """The bundle of a problem below `root`, serving each shape of `choices` by that variant.

    Raises KernelsNotLoaded.
    """
    variants = {str(shape): _text(variant) for shape, variant in (choices or {}).items()}
    tail = TAIL.format(variants=json.dumps(variants), config=CONFIG_INDEX, key=CHOICE_KEY)
    return _build(root, problem) + tail


def kernels_digest(root: Path, problem: str) -> str:
    """SHA-256 of the bundle without the dispatch table: the kernels' version. Raises KernelsNotLoaded."""
    lines = _build(root, problem).splitlines()
    begin = lines.index(f"# From {TABLE}")
    end = next(index for index in range(begin, len(lines)) if lines[index] == "}")
    return hashlib.sha256("\n".join(lines[:begin] + lines[end + 1 :]).encode()).hexdigest()


def with_choice(data: tuple[Any, ...], variant: Variant | None) -> tuple[Any, ...]:
    """An input that names the variant by which it is to be served; None: the dispatch table's own."""
    text = (_text(variant) if variant else "").encode().ljust(CHOICE_BYTES)
    named = torch.frombuffer(bytearray(text), dtype=torch.uint8)  # uint8 [CHOICE_BYTES] on the host
    config = {**data[CONFIG_INDEX], CHOICE_KEY: named}
    return (*data[:CONFIG_INDEX], config, *data[CONFIG_INDEX + 1 :])


def _text(variant: Variant) -> str:
    return json.dumps({"backend": variant.backend, "params": variant.params})


def _build(root: Path, problem: str) -> str:
    try:
        found = [entry for entry in bundle.load_manifest(root) if entry.leaderboard == problem]
        if not found:
            raise KernelsNotLoaded(f"{root / bundle.MANIFEST}: no submission for {problem}; the sweep tunes generated ones")
        return bundle.build(root, found[0])
    except (bundle.BundleError, OSError) as error:
        raise KernelsNotLoaded(f"the kernels below {root} cannot be bundled: {error}") from None
