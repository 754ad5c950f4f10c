"""The tuned table and kernel sources that live in files of their own. The bundler replaces this module by their contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PROBLEM = Path(__file__).resolve().parents[2] / "problems" / "flash_mla"

# {device or architecture: [{"shape": [kind, batch, q_len, heads, kv_heads, tokens], "backend": name, "params": {...}}]}
FLASH_MLA_TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load((PROBLEM / "dispatch.yml").read_text())["flash-mla"]

SHARED_CUDA = Path(__file__).resolve().parent.parent / "cuda"
CUDA_PTX = (SHARED_CUDA / "ptx.cuh").read_text()

CUDA = Path(__file__).resolve().parent / "cuda"
SPARSE_PTX = (CUDA / "sparse_ptx.cuh").read_text()
SPARSE_BLOCK = (CUDA / "block.cuh").read_text()
SPARSE_GATHER = (CUDA / "gather.cuh").read_text()
SPARSE_QUERY = (CUDA / "query.cuh").read_text()
SPARSE_ATTEND = (CUDA / "attend.cuh").read_text()
SPARSE_KERNEL = (CUDA / "sparse.cuh").read_text()
SPARSE_MERGE = (CUDA / "merge.cuh").read_text()
SPARSE_LAUNCH = (CUDA / "launch.cu").read_text()
