"""FlyDSL kernels, compiled for gfx950 on a machine without a GPU: `python flydsl_kernels.py FOLDER` writes NAME.hsaco files.

Runs in a process of its own with the FlyDSL wheel in PYTHONPATH, because the wheel brings its own MLIR. ROCM_PATH must
name a folder holding llvm/bin/ld.lld and amdgcn/bitcode.
"""

import os
import re
import sys
from pathlib import Path

os.environ.update(ARCH="gfx950", COMPILE_ONLY="1", FLYDSL_RUNTIME_ENABLE_CACHE="0")

import flydsl.compiler as flyc
import flydsl.expr as fx
import torch

THREADS = 256
ITEMS = 2
SORT_THREADS = 64
BINS = 64
TOP_K = 10
TILE = 64


@flyc.kernel(known_block_size=[THREADS, 1, 1])
def vector_add(a: fx.Tensor, b: fx.Tensor, c: fx.Tensor):
    i = fx.block_idx.x * THREADS + fx.thread_idx.x
    c[i] = a[i] + b[i]


@flyc.kernel(known_block_size=[THREADS, 1, 1])
def softmax_rows(x: fx.Tensor, y: fx.Tensor):
    """One row of THREADS elements per workgroup."""
    i = fx.block_idx.x * THREADS + fx.thread_idx.x
    reduce = fx.coop.BlockReduce[fx.Float32, THREADS]
    storage = fx.SharedAllocator().allocate(reduce.SharedStorage).peek()
    value = x[i]
    largest = reduce(value, fx.ReductionOp.MAX, storage=storage)
    fx.barrier()
    weight = fx.math.exp2((value - largest) * 1.4426950408889634)
    y[i] = weight / reduce(weight, fx.ReductionOp.ADD, storage=storage)


@flyc.kernel(known_block_size=[THREADS, 1, 1])
def raking_sum(x: fx.Tensor, y: fx.Tensor):
    i = fx.thread_idx.x
    reduce = fx.coop.BlockReduce[fx.Int32, THREADS, fx.coop.BlockReduceAlgorithm.RAKING]
    storage = fx.SharedAllocator().allocate(reduce.SharedStorage).peek()
    y[i] = reduce(x[i], fx.ReductionOp.ADD, storage=storage)


@flyc.kernel(known_block_size=[THREADS, 1, 1])
def inclusive_sum(x: fx.Tensor, y: fx.Tensor):
    i = fx.thread_idx.x
    scan = fx.coop.BlockScan[fx.Int32, THREADS]
    storage = fx.SharedAllocator().allocate(scan.SharedStorage).peek()
    y[i] = scan.inclusive(x[i], fx.ReductionOp.ADD, storage=storage)


@flyc.kernel(known_block_size=[SORT_THREADS, 1, 1])
def radix_sort(x: fx.Tensor, y: fx.Tensor):
    i = fx.thread_idx.x * ITEMS
    sort = fx.coop.BlockRadixSort[fx.Int32, SORT_THREADS, ITEMS]
    storage = fx.SharedAllocator().allocate(sort.SharedStorage).peek()
    ordered = sort([x[i], x[i + 1]], storage=storage)
    y[i] = ordered[0]
    y[i + 1] = ordered[1]


@flyc.kernel(known_block_size=[SORT_THREADS, 1, 1])
def merge_sort(x: fx.Tensor, y: fx.Tensor):
    i = fx.thread_idx.x * ITEMS
    sort = fx.coop.BlockMergeSort[fx.Float32, SORT_THREADS, ITEMS]
    storage = fx.SharedAllocator().allocate(sort.SharedStorage).peek()
    ordered = sort([x[i], x[i + 1]], storage=storage, descending=True)
    y[i] = ordered[0]
    y[i + 1] = ordered[1]


@flyc.kernel(known_block_size=[THREADS, 1, 1])
def histogram(x: fx.Tensor, y: fx.Tensor):
    i = fx.thread_idx.x
    count = fx.coop.BlockHistogram[fx.Int32, THREADS, BINS]
    storage = fx.SharedAllocator().allocate(count.SharedStorage).peek()
    counts = count([x[i]], storage=storage)
    fx.barrier()
    if i < BINS:
        y[i] = counts[i]


@flyc.kernel(known_block_size=[THREADS, 1, 1])
def warp_scan_and_broadcast(x: fx.Tensor, y: fx.Tensor):
    """y = (prefix sum in groups of 16 lanes) + 1000 * (the group's lane 3)."""
    i = fx.thread_idx.x
    value = x[i]
    prefix = fx.coop.warp_inclusive_scan(value, fx.ReductionOp.ADD, width=16)
    y[i] = prefix + 1000 * fx.coop.warp_broadcast(value, 3, width=16)


def tiled_product(m, n, k, dtype, copy, warps):
    """C [TILE, TILE] = A [TILE, k] @ B [TILE, k]^T by one workgroup of four waves and MFMA m x n x k."""

    @flyc.kernel(known_block_size=[THREADS, 1, 1])
    def product(a: fx.Tensor, b: fx.Tensor, c: fx.Tensor):
        tid = fx.thread_idx.x
        tiles = [(a, (TILE, k)), (b, (TILE, k)), (c, (TILE, TILE))]
        a_tile, b_tile, c_tile = (
            fx.slice(fx.zipped_divide(fx.rocdl.make_buffer_tensor(t), fx.make_tile(*shape)), (None, 0)) for t, shape in tiles
        )
        atom = fx.make_mma_atom(fx.rocdl.MFMA(m, n, k, dtype))
        mma = fx.make_tiled_mma(atom, fx.make_layout((*warps, 1), (1, warps[0], 0)))
        thread = mma.thr_slice(tid)
        load = fx.make_copy_atom(getattr(fx.rocdl, copy)(), dtype)
        store = fx.make_copy_atom(fx.rocdl.BufferCopy32b(), fx.Float32)
        from_a = fx.make_tiled_copy_A(load, mma).get_slice(tid)
        from_b = fx.make_tiled_copy_B(load, mma).get_slice(tid)
        to_c = fx.make_tiled_copy_C(store, mma).get_slice(tid)
        a_part, b_part = thread.make_fragment_A(a_tile), thread.make_fragment_B(b_tile)
        c_part = thread.make_fragment_C(c_tile)
        fx.copy(load, from_a.partition_S(a_tile), from_a.retile(a_part))
        fx.copy(load, from_b.partition_S(b_tile), from_b.retile(b_part))
        c_part.fill(0)
        fx.gemm(atom, c_part, a_part, b_part, c_part)
        fx.copy(store, to_c.retile(c_part), to_c.partition_S(c_tile))

    return product


def one_argument_pair(kernel, blocks, threads):
    @flyc.jit
    def launch(x: fx.Tensor, y: fx.Tensor):
        kernel(x, y).launch(grid=(blocks, 1, 1), block=(threads, 1, 1))

    return launch


def three_arguments(kernel, blocks):
    @flyc.jit
    def launch(a: fx.Tensor, b: fx.Tensor, c: fx.Tensor):
        kernel(a, b, c).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1))

    return launch


def launches():
    """name -> (launcher, example arguments); shapes and types as in the test's problems."""
    int32 = torch.zeros(THREADS, dtype=torch.int32)
    pair32 = torch.zeros(SORT_THREADS * ITEMS, dtype=torch.int32)
    square = torch.zeros(TILE, TILE)

    def operands(k, dtype):
        return torch.zeros(TILE, k, dtype=dtype), torch.zeros(TILE, k, dtype=dtype), square

    return {
        "vector_add": (three_arguments(vector_add, 4), [torch.zeros(4 * THREADS)] * 3),
        "softmax_rows": (one_argument_pair(softmax_rows, 3, THREADS), [torch.zeros(3 * THREADS)] * 2),
        "raking_sum": (one_argument_pair(raking_sum, 1, THREADS), [int32, int32]),
        "inclusive_sum": (one_argument_pair(inclusive_sum, 1, THREADS), [int32, int32]),
        "radix_sort": (one_argument_pair(radix_sort, 1, SORT_THREADS), [pair32, pair32]),
        "merge_sort": (one_argument_pair(merge_sort, 1, SORT_THREADS), [pair32.float(), pair32.float()]),
        "histogram": (one_argument_pair(histogram, 1, THREADS), [int32, torch.zeros(BINS, dtype=torch.int32)]),
        "warp_scan_and_broadcast": (one_argument_pair(warp_scan_and_broadcast, 1, THREADS), [int32, int32]),
        "product_fp32": (three_arguments(tiled_product(16, 16, 4, fx.Float32, "BufferCopy32b", (2, 2)), 1),
                         operands(4, torch.float32)),
        "product_bf16": (three_arguments(tiled_product(16, 16, 32, fx.BFloat16, "BufferCopy128b", (2, 2)), 1),
                         operands(32, torch.bfloat16)),
        "product_bf16_32x32": (three_arguments(tiled_product(32, 32, 16, fx.BFloat16, "BufferCopy128b", (2, 2)), 1),
                               operands(16, torch.bfloat16)),
        "product_fp16": (three_arguments(tiled_product(16, 16, 16, fx.Float16, "BufferCopy64b", (4, 1)), 1),
                         operands(16, torch.float16)),
    }  # fmt: skip


def embedded_binary(ir: str) -> bytes:
    """The code object inside the printed gpu.binary operation: `bin = "..."` with MLIR's hexadecimal escapes."""
    text = re.search(r'bin = "((?:[^"\\]|\\.)*)"', ir)
    if not text:
        raise ValueError("the compiled module holds no gpu.binary")
    return re.sub(rb"\\([0-9A-F]{2}|.)", lambda m: bytes.fromhex(m[1].decode()) if len(m[1]) == 2 else m[1], text[1].encode())


def main(folder: Path) -> None:
    for name, (launch, arguments) in launches().items():
        launch(*arguments)
        artifact = launch._last_compiled[1]
        (folder / f"{name}.hsaco").write_bytes(embedded_binary(artifact.ir))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
