"""The backends of flash_mla_with_kvcache and their tuned parameters."""

from __future__ import annotations

from typing import Any

from kernels.flash_mla.assets import FLASH_MLA_TABLE
from kernels.flash_mla.call import Call, call_key, workload
from kernels.flash_mla.cuda_backend import SparseCudaBackend
from kernels.flash_mla.torch_backend import TorchBackend
from kernels.flash_mla.triton_backend import TritonBackend
from kernels.selection import Selection


def unserved(backend: Any, call: Call) -> str | None:
    return backend.unserved(call) if isinstance(backend, SparseCudaBackend) else None


# A call has been checked when it gets here. Its plans are kept in the caller's scheduler object. The CUDA kernels serve what
# the table gives them.
SELECTION = Selection(
    (TritonBackend(), TorchBackend(), SparseCudaBackend()), FLASH_MLA_TABLE, workload, call_key, unserved=unserved
)
