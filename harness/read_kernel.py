"""A plain read of device memory, as fast as the hardware does it: what the measured floor times on a GPU."""

import triton
import triton.language as tl

BLOCK_WORDS = 4096  # 16 KiB a block: eight 16-byte loads in flight in each of 128 threads
NUM_WARPS = 4


@triton.jit
def read_kernel(source, sink, words, BLOCK_WORDS: tl.constexpr):
    """Every program reads one block of fp32 `source` [words]; `sink` [1] keeps the compiler from dropping the loads.

    The words are positive, so their sum never equals -1 and nothing is stored.
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)
    values = tl.load(source + offsets, mask=offsets < words, other=1.0)
    total = tl.sum(values)
    if total == -1.0:
        tl.store(sink, total)
