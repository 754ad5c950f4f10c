"""The backends of flash_mla_with_kvcache and their tuned parameters."""

from __future__ import annotations

from kernels.flash_mla.call import call_key, workload
from kernels.flash_mla.tables import FLASH_MLA_TABLE
from kernels.flash_mla.torch_backend import TorchBackend
from kernels.flash_mla.triton_backend import TritonBackend
from kernels.selection import Selection

# A call has been checked when it gets here. Its plans are kept in the caller's scheduler object.
SELECTION = Selection((TritonBackend(), TorchBackend()), FLASH_MLA_TABLE, workload, call_key)
