"""What a setting of the HIP kernels costs on gfx950, without the card: resources from the compiler, pipes from the emulator."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import reference
from gfx950.emulator import CONJUNCTION, Estimate
from gfx950.errors import CompileFailed
from gfx950.limits import LDS_BYTES_PER_CU
from kernels.hip_backend import Traits, traits_of
from kernels.layout import Shape
from scripts.hip_emulation import decode_report, emulate
from scripts.mi355x_page import full_estimate

SEED = 1


def fault_of(params: Mapping[str, Any]) -> str | None:
    """Why the decode kernel of a setting must not run: it spills, uses scratch or too much LDS, or does not compile."""
    return fault_of_traits(traits_of(dict(params)))


@functools.cache
def fault_of_traits(traits: Traits) -> str | None:
    """As `fault_of`, once for every instantiation."""
    try:
        found = decode_report(traits)
    except CompileFailed as error:
        said = [line.partition("error:")[2].strip() for line in str(error).splitlines() if "error:" in line]
        return f"does not compile: {shortened((said or ['clang gives no reason'])[0])}"
    if found.vgpr_spills or found.scratch_bytes:
        return f"{found.vgpr_spills} VGPRs spilled, {found.scratch_bytes} bytes of scratch a work-item"
    if found.lds_bytes > LDS_BYTES_PER_CU:
        return f"{found.lds_bytes} bytes of LDS; a compute unit has {LDS_BYTES_PER_CU}"
    return None


def shortened(text: str) -> str:
    """A compiler's line without its middle: what failed stands first, why stands last."""
    return text if len(text) <= 200 else f"{text[:100]} ... {text[-100:]}"


def estimate_of(shape: tuple[int, int, int, int], params: Mapping[str, Any]) -> Estimate | str:
    """A lower bound on an MI355X's time, from the counters of one emulated sequence scaled to the batch; or what the
    emulator found wrong. An ESTIMATE: no card was involved.
    """
    whole = Shape(*shape)
    data = reference.generate_input(1, whole.q_len, whole.kv_len, SEED, numheads=whole.heads, device="cpu")
    splits = int(params["num_kv_splits"])
    result = emulate(data, traits_of(dict(params)), splits, schedules=CONJUNCTION[:1], lds_fills=["zero"])
    if not result.verdict.ok:
        return str(result.verdict).splitlines()[0]
    return full_estimate(whole, result, emulated=1)
