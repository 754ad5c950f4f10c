"""The backends of the NVFP4 block-sparse problem and their tuned parameters."""

from __future__ import annotations

from kernels.nvfp4_msa.assets import DISPATCH_TABLE
from kernels.nvfp4_msa.cuda_backend import CudaBackend
from kernels.nvfp4_msa.hip_backend import HipBackend
from kernels.nvfp4_msa.layout import check_input, plan_key, shape_of
from kernels.nvfp4_msa.torch_backend import TorchBackend
from kernels.nvfp4_msa.triton_backend import TritonBackend
from kernels.selection import Selection

BACKENDS = (HipBackend(), TritonBackend(), CudaBackend(), TorchBackend())
SELECTION = Selection(BACKENDS, DISPATCH_TABLE, shape_of, plan_key, check_input)
