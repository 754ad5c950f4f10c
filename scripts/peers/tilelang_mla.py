"""TileLang's MLA decode example in bf16, one query token a sequence.

The package has no MLA kernel: examples/deepseek_mla/example_mla_decode.py of its repository must lie in site-packages. Its
kernel reads latent and rope parts from two tensors, so splitting every KV row is part of the time; it is written in f16,
which is exchanged for bf16 here, or KV would have to be converted too.
API: flashattn(batch, heads, kv_heads, kv_len, dim, pe_dim, block_N, block_H, num_split[, softmax_scale]) -> kernel of
(Q, Q_pe, KV, K_pe, glse, Output_partial).
"""

import importlib.util
import inspect
import linecache
from typing import Any

import torch

from scripts.peers.common import KV_RANK, ROPE_DIM, Kernel, Shape, Unsupported, need_gpu, planned
from task import input_t, output_t

try:
    import tilelang  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError(f"{error}; pip install tilelang") from error

EXAMPLE = "example_mla_decode"
BLOCK_N, BLOCK_H = 64, 64
MAX_SPLITS = 32


def load_example() -> Any:
    """The example's factory, in bf16. Raises ImportError."""
    spec = importlib.util.find_spec(EXAMPLE)
    if spec is None or spec.loader is None or spec.origin is None:
        raise ImportError(f"no {EXAMPLE}; copy examples/deepseek_mla/{EXAMPLE}.py of the TileLang repository to site-packages")
    module = importlib.util.module_from_spec(spec)
    with open(spec.origin, encoding="utf-8") as file:
        source = file.read().replace('"float16"', '"bfloat16"').replace("T.float16", "T.bfloat16")
    name = f"<{EXAMPLE} in bf16>"  # TileLang reads a kernel's source by its file name
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), vars(module))
    return module.flashattn


FLASHATTN = load_example()


def num_splits(shape: Shape, multiprocessors: int) -> int:
    """As many as give every multiprocessor a block; each a whole number of tiles."""
    tiles = shape.kv_len // BLOCK_N
    wanted = min(MAX_SPLITS, max(1, multiprocessors // shape.batch))
    return max(splits for splits in range(1, min(wanted, tiles) + 1) if tiles % splits == 0)


def plan(data: input_t, shape: Shape) -> Kernel:
    """A kernel compiled for the shape."""
    device = need_gpu(data)
    if shape.q_len != 1 or shape.kv_len % BLOCK_N:
        raise Unsupported(f"q {shape.q_len}, kv {shape.kv_len}: one query token, multiples of {BLOCK_N} KV tokens")
    splits = num_splits(shape, torch.cuda.get_device_properties(device).multi_processor_count)
    block_h = min(BLOCK_H, shape.heads)
    sizes = [shape.batch, shape.heads, 1, shape.kv_len, KV_RANK, ROPE_DIM, BLOCK_N, block_h, splits]
    takes_scale = "softmax_scale" in inspect.signature(getattr(FLASHATTN, "func", FLASHATTN)).parameters
    kernel = FLASHATTN(*sizes, shape.sm_scale) if takes_scale else FLASHATTN(*sizes)
    options = {"dtype": torch.bfloat16, "device": device}
    lse = torch.empty(shape.batch, shape.heads, splits, **options)
    partial = torch.empty(shape.batch, shape.heads, splits, KV_RANK, **options)

    def run(data: input_t) -> torch.Tensor:
        q, kv = data[0], data[1]["bf16"].view(shape.batch, shape.kv_len, 1, -1)
        parts = (part.contiguous() for rows in (q, kv) for part in rows.split([KV_RANK, ROPE_DIM], dim=-1))
        return kernel(*parts, lse, partial)

    return run


def custom_kernel(data: input_t) -> output_t:
    """bf16 [total_q, heads, 512]."""
    return planned(data, plan)(data)


def describe(data: input_t) -> dict:
    """What is measured."""
    return {"backend": "TileLang", "params": {"format": "bf16", "version": getattr(tilelang, "__version__", None)}}
