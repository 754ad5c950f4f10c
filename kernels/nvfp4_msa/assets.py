"""The tuned table and kernel sources that live in files of their own. The bundler replaces this module by their contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PROBLEM = Path(__file__).resolve().parents[2] / "problems" / "nvfp4_msa"

# {device or architecture: [{"shape": [...], "backend": name, "params": {...}}]}
DISPATCH_TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load((PROBLEM / "dispatch.yml").read_text())["nvfp4-msa"]

SHARED_HIP = Path(__file__).resolve().parent.parent / "hip"
HIP_COMMON = (SHARED_HIP / "common.hip").read_text()
HIP_LDS_DMA = (SHARED_HIP / "lds_dma.hip").read_text()
HIP_SOFTMAX = (SHARED_HIP / "softmax.hip").read_text()
HIP_COMBINE = (SHARED_HIP / "combine.hip").read_text()
HIP_LAUNCH_TABLE = (SHARED_HIP / "launch_table.hip").read_text()

HIP = Path(__file__).resolve().parent / "hip"
HIP_TRAITS = (HIP / "traits.hip").read_text()
HIP_SLOTS = (HIP / "slots.hip").read_text()
HIP_LOAD = (HIP / "load.hip").read_text()
HIP_QUERY = (HIP / "query.hip").read_text()
HIP_SCORES = (HIP / "scores.hip").read_text()
HIP_VALUES = (HIP / "values.hip").read_text()
HIP_MERGE = (HIP / "merge.hip").read_text()
HIP_DECODE = (HIP / "decode.hip").read_text()
HIP_LAUNCH = (HIP / "launch.hip").read_text()
HIP_ARGUMENTS = (HIP / "arguments.h").read_text()
HIP_BINDING = (HIP / "binding.cpp").read_text()

CUDA_PTX = (Path(__file__).resolve().parent.parent / "cuda" / "ptx.cuh").read_text()

CUDA = Path(__file__).resolve().parent / "cuda"
CUDA_ELECT = (CUDA / "elect.cuh").read_text()
CUDA_WORK = (CUDA / "work.cuh").read_text()
CUDA_RING = (CUDA / "ring.cuh").read_text()
CUDA_UNPACK = (CUDA / "unpack.cuh").read_text()
CUDA_QUERY = (CUDA / "query.cuh").read_text()
CUDA_SOFTMAX = (CUDA / "softmax.cuh").read_text()
CUDA_ATTEND_WIDE = (CUDA / "attend_wide.cuh").read_text()
CUDA_ATTEND_NARROW = (CUDA / "attend_narrow.cuh").read_text()
CUDA_ATTEND = (CUDA / "attend.cuh").read_text()
CUDA_MERGE = (CUDA / "merge.cuh").read_text()
CUDA_DECODE = (CUDA / "decode.cuh").read_text()
CUDA_LAUNCH = (CUDA / "launch.cu").read_text()
