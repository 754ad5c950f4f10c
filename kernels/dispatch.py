"""The backends of mixed MLA and their tuned parameters."""

from __future__ import annotations

from kernels.aiter_backend import AiterBackend
from kernels.assets import DISPATCH_TABLE
from kernels.cuda_backend import CudaBackend
from kernels.hip_backend import HipBackend
from kernels.layout import plan_key, shape_of
from kernels.selection import Selection
from kernels.torch_backend import TorchBackend
from kernels.triton_backend import TritonBackend

SELECTION = Selection(
    (HipBackend(), AiterBackend(), TritonBackend(), CudaBackend(), TorchBackend()), DISPATCH_TABLE, shape_of, plan_key
)
