"""The CUDA kernels without a GPU: their own source on a CPU machine with adversarial schedules, against the fp64 oracle."""

import random
import subprocess
import sys
from pathlib import Path

import cuda_on_cpu
import pytest
import torch
from cpu_build import compiler
from cuda_inputs import paged, random_input, scales_far_apart
from mla_oracle import BF16_REL_L2, make_input, oracle, worst_rel_l2

from kernels.cuda_backend import CUDA_KERNELS

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler that knows _Float16")
KERNELS = [name for name in CUDA_KERNELS if not name.endswith("paged")]
MXFP4_KERNELS = [name for name in KERNELS if name.startswith("mxfp4")]

# Output, P and, between the blocks of a cluster, partial outputs are rounded to bf16: one more than
# BF16_REL_L2 allows for.
CUDA_REL_L2 = 1.5 * BF16_REL_L2


def assert_right(data, kernel, cluster=1, groups=1, seed=0):
    expected = oracle(data, kernel.partition("_")[0])
    assert worst_rel_l2(cuda_on_cpu.decode(data, kernel, cluster, groups, seed), expected) < CUDA_REL_L2


@pytest.mark.parametrize(("cluster", "groups"), [(1, 1), (3, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_ragged_sequences_and_spare_rows(kernel, cluster, groups):
    assert_right(make_input([200, 0, 64, 65, 1], 2, 12), kernel, cluster, groups, seed=cluster)


@pytest.mark.parametrize("kernel", KERNELS)
def test_stages_are_used_again_and_again(kernel):
    data = make_input([900])
    for seed in range(2):
        assert_right(data, kernel, seed=seed)


@pytest.mark.parametrize("lengths", [[130, 130, 130], [200, 0, 190], [1, 388, 1]])
@pytest.mark.parametrize("kernel", KERNELS)
def test_lengths_that_the_host_takes_for_equal(kernel, lengths):
    """Copies start before the lengths are read; where the host was wrong they are thrown away."""
    data = make_input(lengths)
    data[4]["kv_seq_len"] = sum(lengths) // len(lengths)
    for cluster in (1, 2):
        assert_right(data, kernel, cluster, seed=cluster)


@pytest.mark.parametrize(
    ("kernel", "cluster"), [("fp8_narrow", 16), ("fp8_narrow", 14), ("fp8_wide", 11), ("bf16_wide", 7), ("mxfp4", 13)]
)
def test_clusters_up_to_sixteen(kernel, cluster):
    """Shares that do not come out even, down to the last block's of 14, which has none; more blocks than tiles."""
    assert_right(make_input([700, 1100]), kernel, cluster)


def check_random_shape(draw):
    data = random_input(draw, sequences=3, longest=600)
    cluster, groups = draw.choice([(1, 1), (2, 1), (3, 1), (5, 1), (1, 2), (2, 2), (3, 3)])
    assert_right(data, draw.choice(KERNELS), cluster, groups, draw.randint(0, 1 << 30))


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed):
    check_random_shape(random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(4))
def test_many_random_shapes(share):
    draw = random.Random(1000 + share)
    for _ in range(250):
        check_random_shape(draw)


@pytest.mark.parametrize("kernel", MXFP4_KERNELS)
def test_block_scales_of_any_size(kernel):
    assert_right(scales_far_apart([150, 70, 1]), kernel, 2)


@pytest.mark.parametrize("scale", [2.0**-20, 2.0**12])
def test_queries_of_any_size(scale):
    data = make_input([100, 50])
    config = {**data[4], "sm_scale": data[4]["sm_scale"] / scale}
    assert_right((data[0] * scale, *data[1:4], config), "fp8_wide", 2)


def test_nan_beyond_a_sequence_stays_there():
    data = make_input([70, 3, 100])
    data[1]["fp8"][0].view(torch.uint8)[70:73] = 0x7F  # NaN: the second sequence, which lies in the first one's last tile
    out = cuda_on_cpu.decode(data, "fp8_wide")
    assert out[0].isfinite().all()
    assert out[1].isnan().all()
    assert out[2].isfinite().all()


@pytest.mark.parametrize("page_size", [8, 16, 64, 256])
def test_pages_anywhere(page_size):
    lengths = [300, 1, 0, 64, 133]
    data = make_input(lengths, 1, 16)
    cache, table = paged(data, lengths, page_size)
    for kernel in ("fp8_paged", "bf16_paged"):
        out = cuda_on_cpu.decode(cache, kernel, 2, 1, pages=(table, page_size))
        assert worst_rel_l2(out, oracle(data, kernel.partition("_")[0])) < CUDA_REL_L2, kernel


GUARDED = """
import ctypes, mmap, sys
sys.path[:0] = [{here!r}, {support!r}, {root!r}]
import cuda_on_cpu, torch
from mla_oracle import make_input
data = make_input([300, 0, 64, 65, 1])
values, scales = data[1]["mxfp4"]
scales = scales.view(torch.uint8)[: values.shape[0]].contiguous()
size = scales.numel()
pages = -(-size // mmap.PAGESIZE)
memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
end = pages * mmap.PAGESIZE
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + end), mmap.PAGESIZE, 0) == 0
guarded = torch.frombuffer(memory, dtype=torch.uint8, offset=end - size, count=size).view(scales.shape).copy_(scales)
data[1]["mxfp4"] = values, guarded
for cluster in (1, 3):
    assert cuda_on_cpu.decode(data, "mxfp4", cluster).isfinite().all()
print("read no further", flush=True)
import os
os._exit(0)
"""


def test_nothing_beyond_the_scales_is_read():
    """Copies of whole units of 16 bytes once read up to 15 bytes past the tensor; compute-sanitizer's memcheck saw it."""
    here = Path(__file__).parent
    code = GUARDED.format(here=str(here), support=str(here.parent / "support"), root=str(here.parents[1]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "read no further", done.stderr[-2000:] or f"exit code {done.returncode}"


def test_splits_of_a_bf16_cache_add_no_rounding():
    """Shares in bf16 had a third more error: single elements of long sequences then failed the strict verdict."""
    data = make_input([900])
    expected = oracle(data, "bf16")
    alone, split = (worst_rel_l2(cuda_on_cpu.decode(data, "bf16_wide", cluster), expected) for cluster in (1, 2))
    assert split < 1.15 * alone
