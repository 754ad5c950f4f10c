"""Defects that a public Triton version of this operator has: ours, given one by editing its text, fails the probes for it.

test_flash_mla_interpreted.py shows that the unedited kernels pass the same probes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PARTS, SPARSE, DENSE = (f"flash_mla/triton_{name}.py" for name in ("parts", "sparse", "dense"))
BACKEND, CALL = "flash_mla/triton_backend.py", "flash_mla/call.py"
V32 = {"batchsize": 2, "qseqlen": 1, "kvseqlen": 150, "layout": "v32", "topk": 128, "numheads": 16}
RAGGED = {"batchsize": 4, "qseqlen": 1, "kvseqlen": 40, "kvmin": 0, "numheads": 16}


class Defect(NamedTuple):
    edits: list[tuple[str, str, str]]  # file under kernels/, text, text of the defective version
    probe: str
    keywords: dict


EMPTY = RAGGED | {"seed": 4, "kvseqlen": 1}
CAUSAL = RAGGED | {"seed": 5, "qseqlen": 3, "causal": 1}
DEFECTS = {
    "1 leading chunk without a valid id": Defect(
        [(PARTS, 'base = tl.where(new_peak == -float("inf"), 0.0, new_peak)', "base = new_peak")],
        "judge",
        V32 | {"seed": 1, "invalid": "lead"},
    ),
    "2 invalid ids load token 0": Defect(
        [
            (SPARSE, "    row_valid = valid[:, None]\n", "    row_valid = valid[:, None] | (index >= 0)[:, None]\n"),
            (SPARSE, "scales = tl.load(scale_ptr, mask=valid[:, None], other=0.0)", "scales = tl.load(scale_ptr)"),
        ],
        "judge",
        V32 | {"seed": 2, "invalid": "some", "kvseqlen": 1500, "topk": 48},
    ),
    "3 sink as exp(lse) + exp(sink)": Defect(
        [(PARTS, "return 1.0 / (1.0 + tl.exp2(sink - lse))", "return tl.exp2(lse) / (tl.exp2(lse) + tl.exp2(sink))")],
        "judge",
        V32 | {"seed": 3, "sink": "mixed", "dist": "large", "topk": 2},
    ),
    "4 empty sequence: out": Defect(
        [(PARTS, "tl.where(total[:, None] != 0, acc * (factor / total)[:, None], 0.0)", "acc / total[:, None]")],
        "judge",
        EMPTY,
    ),
    "4 empty sequence: lse": Defect(
        [(PARTS, 'lse = tl.where(total == 0, float("inf"), natural)', "lse = natural")],
        "judge",
        EMPTY,
    ),
    "5 causal with several tokens raises": Defect(
        [(CALL, "    return call._replace(block_t", "    require(not call.causal, '')\n    return call._replace(block_t")],
        "judge",
        CAUSAL,
    ),
    "5 causal as if there were one token": Defect(
        [(DENSE, "row_end = length - q_len + query + 1 if causal", "row_end = length + 0 * query if causal")],
        "judge",
        CAUSAL,
    ),
    "6 V32 copies the cache": Defect(
        [(BACKEND, "cache.view(torch.uint8)", "cache.clone().view(torch.uint8)")],
        "call_in_place",
        {},
    ),
    "7 no split-KV": Defect(
        [(BACKEND, "return max(1, min(multiprocessors", "return min(1, min(multiprocessors")],
        "small_batch_fills_gpu",
        {},
    ),
    "8 topk a multiple of 64": Defect(
        [(CALL, "    require(not call.c", "    require(call.indices.shape[2] % 64 == 0, '')\n    require(not call.c")],
        "judge",
        V32 | {"seed": 8, "topk": 37},
    ),
    "8 32-bit offsets, dense": Defect(
        [(DENSE, "inside, other=0).to(tl.int64)", "inside, other=0)"), (DENSE, "page_size).to(tl.int64)", "page_size)")],
        "far_pages",
        {"dense": True},
    ),
    "8 32-bit offsets, sparse": Defect(
        [
            (SPARSE, "% page_size).to(tl.int64)", "% page_size).to(tl.int32)"),
            (SPARSE, "// page_size).to(tl.int64)", "// page_size).to(tl.int32)"),
        ],
        "far_pages",
        {"dense": False},
    ),
    "8 scale compiled in": Defect(
        [(SPARSE, "    sm_scale,\n", "    sm_scale: tl.constexpr,\n")],
        "another_scale",
        {},
    ),
    "8 a plan for every scale": Defect(
        [(CALL, "return q.device, layout,", "return call.sm_scale, q.device, layout,")],
        "another_scale",
        {},
    ),
    "9 one KV head": Defect(
        [(DENSE, "kv_head * head_stride_16b", "0 * kv_head")],
        "judge",
        RAGGED | {"seed": 9, "kvheads": 2, "kvmin": 5},
    ),
    "9 topk_length by query token": Defect(
        [(SPARSE, "list_length(length_ptr, token // q_len, topk", "list_length(length_ptr, tl.minimum(token, 1), topk")],
        "judge",
        V32 | {"seed": 10, "qseqlen": 2, "lengths": 1},
    ),
}


def ask(versions):
    """What every version's probes complain about."""
    paths = os.pathsep.join((str(ROOT), str(HERE)))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths, "KERNELPROOF_BACKEND": "triton"}
    command = [sys.executable, "-W", "ignore", str(HERE / "flash_mla_interpreted.py")]
    run = subprocess.run(command, input=json.dumps(versions), env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def complaints():
    """For every defect what the defective version and the true one are told."""
    defective = [{"edits": d.edits, "probes": [(d.probe, d.keywords)]} for d in DEFECTS.values()]
    true = {"edits": [], "probes": [(d.probe, d.keywords) for d in DEFECTS.values()]}
    *found, clean = ask([*defective, true])
    return dict(zip(DEFECTS, zip((answers[0] for answers in found), clean, strict=True), strict=True))


@pytest.mark.parametrize("name", DEFECTS)
def test_a_version_with_the_defect_fails_and_ours_passes(complaints, name):
    defective, ours = complaints[name]
    assert ours == ""
    assert defective != ""
