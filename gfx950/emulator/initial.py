"""What the hardware sets up before a kernel's first instruction.

https://llvm.org/docs/AMDGPUUsage.html, "Initial Kernel Execution State", columns for GFX90A/GFX940/GFX950.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..codeobject import Kernel
from .arguments import Dispatch
from .buffers import AddressSpace
from .executor import LaunchConfig
from .image import IMAGE_BASE

# What run times add to a work-item's scratch for calls whose depth the compiler does not know.
DYNAMIC_STACK_BYTES = 16 * 1024
PRELOAD_PROLOGUE_BYTES = 256  # code that loads the arguments where firmware cannot preload them; skipped


def initial_state(kernel: Kernel, dispatch: Dispatch, kernarg: np.ndarray, space: AddressSpace) -> LaunchConfig:
    """Geometry, registers and modes at the first instruction, from the kernel's descriptor."""
    d = kernel.descriptor
    config = LaunchConfig()
    config.grid[:], config.block[:] = dispatch.grid, dispatch.block
    config.lds_bytes = kernel.lds_bytes + dispatch.dynamic_lds_bytes
    config.scratch_bytes = kernel.scratch_bytes + (DYNAMIC_STACK_BYTES if d.uses_dynamic_stack else 0)
    config.vgpr_count, config.agpr_count = allocated_registers(kernel)
    config.entry_pc = IMAGE_BASE + kernel.address + (PRELOAD_PROLOGUE_BYTES if d.kernarg_preload_dwords else 0)
    config.workitem_dims = d.workitem_id_dimensions
    config.mode_register = (
        d.float_round_mode_32 | d.float_round_mode_16_64 << 2 | d.float_denorm_mode_32 << 4 | d.float_denorm_mode_16_64 << 6
        | d.dx10_clamp << 8 | d.ieee_mode << 9 | d.fp16_overflow << 23
    )  # fmt: skip
    _set_sgprs(config, kernel, dispatch, kernarg, space)
    return config


def allocated_registers(kernel: Kernel) -> tuple[int, int]:
    """v and a registers that a lane may use: one file, in which a0 lies at accum_offset, so that v registers may go on up to
    the whole allocation where no a register is used (see Translator.beyond_registers)."""
    d = kernel.descriptor
    return min(d.vgpr_count, 256), max(0, d.vgpr_count - d.accum_offset)


def _set_sgprs(config: LaunchConfig, kernel: Kernel, dispatch: Dispatch, kernarg: np.ndarray, space: AddressSpace) -> None:
    """What the SGPRs hold at entry (AMDGPUUsage, "Initial Kernel Execution State")."""
    address = space.place(kernarg, "kernarg", False)
    placed = kernel.descriptor.initial_sgprs
    values: dict[str, Sequence[int]] = {
        "kernarg_segment_ptr": _split64(address),
        "private_segment_size": [kernel.scratch_bytes],
        "kernarg_preload": kernarg.view(np.uint32)[kernel.descriptor.kernarg_preload_offset_dwords :].tolist(),
    }
    if "dispatch_ptr" in placed:
        values["dispatch_ptr"] = _split64(space.place(_dispatch_packet(kernel, dispatch, address), "dispatch packet", False))
    config.sgpr_count = kernel.descriptor.user_sgpr_count
    for name, (first, words) in placed.items():
        for k, value in enumerate(values.get(name, ())[:words]):
            config.sgprs[first + k] = value
    for axis, name in enumerate(("workgroup_id_x", "workgroup_id_y", "workgroup_id_z")):
        config.group_id_sgpr[axis] = placed.get(name, (-1, 0))[0]
    config.group_info_sgpr = placed.get("workgroup_info", (-1, 0))[0]


def _split64(value: int) -> list[int]:
    return [value & 0xFFFFFFFF, value >> 32]


def _dispatch_packet(kernel: Kernel, dispatch: Dispatch, kernarg_address: int) -> np.ndarray:
    """hsa_kernel_dispatch_packet_t, 64 bytes: sizes in work-items."""
    packet = np.zeros(16, np.uint32)
    packet.view(np.uint16)[2:5] = dispatch.block
    packet[3:6] = [g * b for g, b in zip(dispatch.grid, dispatch.block, strict=True)]
    packet[6], packet[7] = kernel.scratch_bytes, kernel.lds_bytes + dispatch.dynamic_lds_bytes
    packet[10:12] = _split64(kernarg_address)
    return packet.view(np.uint8)
