"""The backends of flash_mla_with_kvcache and their tuned parameters."""

from __future__ import annotations

from typing import Any, cast

from kernels.flash_mla.call import call_key, workload
from kernels.flash_mla.tables import FLASH_MLA_TABLE
from kernels.flash_mla.torch_backend import TorchBackend
from kernels.flash_mla.triton_backend import TritonBackend
from kernels.selection import Selection

# Plans live in the caller's scheduler object, which interface.py has checked; here it is only the choice.
SELECTION = Selection(
    (TritonBackend(), TorchBackend()), FLASH_MLA_TABLE, cast(Any, workload), cast(Any, call_key), lambda call: None
)
