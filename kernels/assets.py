"""Tables and kernel sources that live in files of their own. The bundler replaces this module by their contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

# {device or architecture: [{"shape": [batch, q_len, kv_len, heads], "backend": name, "params": {...}}]}
DISPATCH_TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load((CONFIGS / "dispatch.yml").read_text())["amd-mixed-mla"]

HIP = Path(__file__).resolve().parent / "hip"
HIP_COMMON = (HIP / "common.hip").read_text()
HIP_LDS_DMA = (HIP / "lds_dma.hip").read_text()
HIP_TRAITS = (HIP / "traits.hip").read_text()
HIP_LOAD = (HIP / "load.hip").read_text()
HIP_BLOCK_SCALES = (HIP / "block_scales.hip").read_text()
HIP_QUERY = (HIP / "query.hip").read_text()
HIP_SCORES = (HIP / "scores.hip").read_text()
HIP_REMAINDER = (HIP / "remainder.hip").read_text()
HIP_SOFTMAX = (HIP / "softmax.hip").read_text()
HIP_VALUES = (HIP / "values.hip").read_text()
HIP_OUTPUT = (HIP / "output.hip").read_text()
HIP_COMBINE = (HIP / "combine.hip").read_text()
HIP_DECODE = (HIP / "decode.hip").read_text()
HIP_LAUNCH = (HIP / "launch.hip").read_text()
HIP_LAUNCH_TABLE = (HIP / "launch_table.hip").read_text()
HIP_ARGUMENTS = (HIP / "arguments.h").read_text()
HIP_BINDING = (HIP / "binding.cpp").read_text()

CUDA = Path(__file__).resolve().parent / "cuda"
CUDA_PTX = (CUDA / "ptx.cuh").read_text()
CUDA_DECODE = (CUDA / "decode.cuh").read_text()
CUDA_QUERY = (CUDA / "query.cuh").read_text()
CUDA_ATTEND = (CUDA / "attend.cuh").read_text()
CUDA_COMBINE = (CUDA / "combine.cuh").read_text()
CUDA_BLOCK = (CUDA / "block.cuh").read_text()
CUDA_DIRECT = (CUDA / "direct.cuh").read_text()
CUDA_UNPACK = (CUDA / "unpack.cuh").read_text()
CUDA_HOLD = (CUDA / "hold.cuh").read_text()
CUDA_UNPACKED = (CUDA / "unpacked.cuh").read_text()
CUDA_VARIANTS = (CUDA / "variants.cuh").read_text()
CUDA_LAUNCH = (CUDA / "launch.cu").read_text()
