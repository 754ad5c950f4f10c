"""The NVFP4 problem's reference as the harness loads it, beside its own pages.py, and small inputs."""

from pathlib import Path
from typing import Any

from harness.modules import ModuleSpace

PROBLEM = Path(__file__).resolve().parents[2] / "problems" / "nvfp4_msa"
REFERENCE: Any = ModuleSpace(PROBLEM).load("reference")
PAGES: Any = ModuleSpace(PROBLEM).load("pages")

# (Hkv, group, ql) of the problem.
HEADS = ((1, 16, 1), (4, 16, 1), (1, 8, 2), (2, 16, 1), (4, 4, 3))


def heads_spec(num_kv_heads: int, group: int, q_len: int) -> dict[str, int]:
    return {"numkvheads": num_kv_heads, "groupsize": group, "qseqlen": q_len}


def make_input(**spec: Any) -> tuple:
    """A small input on the CPU; every key of generate_input can be given."""
    small = {"batchsize": 2, "qseqlen": 1, "kvseqlen": 300, "topk": 3, "seed": 1, "device": "cpu"}
    return REFERENCE.generate_input(**(small | spec))
