"""The 64-byte kernel descriptor: what the hardware sets up before the first instruction.

Layout and bit fields: https://llvm.org/docs/AMDGPUUsage.html, sections "Kernel Descriptor" and "Initial Kernel Execution
State", columns for GFX90A/GFX940/GFX950.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

SIZE = 64


def _bits(word: int, low: int, count: int) -> int:
    return word >> low & (1 << count) - 1


@dataclass(frozen=True)
class KernelDescriptor:
    """The raw words, with their fields as properties. Sizes in bytes."""

    group_segment_fixed_size: int
    private_segment_fixed_size: int
    kernarg_size: int
    kernel_code_entry_byte_offset: int  # from the descriptor's own address to the first instruction
    compute_pgm_rsrc3: int
    compute_pgm_rsrc1: int
    compute_pgm_rsrc2: int
    kernel_code_properties: int
    kernarg_preload: int

    @classmethod
    def parse(cls, data: bytes) -> KernelDescriptor:
        """data: the 64 bytes at the symbol `<kernel>.kd`."""
        return cls(*struct.unpack("<III4xq20xIIIHH4x", data))

    @property
    def vgpr_count(self) -> int:
        """VGPRs allocated per lane, AGPRs included (one unified file, granule 8)."""
        return 8 * (_bits(self.compute_pgm_rsrc1, 0, 6) + 1)

    @property
    def accum_offset(self) -> int:
        """Index in the unified file of a0, i.e. how many of vgpr_count are v registers."""
        return 4 * (_bits(self.compute_pgm_rsrc3, 0, 6) + 1)

    @property
    def tg_split(self) -> bool:
        """Waves of one workgroup may sit on different CUs (then it has no LDS)."""
        return bool(_bits(self.compute_pgm_rsrc3, 16, 1))

    @property
    def float_round_mode_32(self) -> int:
        return _bits(self.compute_pgm_rsrc1, 12, 2)

    @property
    def float_round_mode_16_64(self) -> int:
        return _bits(self.compute_pgm_rsrc1, 14, 2)

    @property
    def float_denorm_mode_32(self) -> int:
        """0 flush sources and results, 1 flush results, 2 flush sources, 3 keep denormals."""
        return _bits(self.compute_pgm_rsrc1, 16, 2)

    @property
    def float_denorm_mode_16_64(self) -> int:
        return _bits(self.compute_pgm_rsrc1, 18, 2)

    @property
    def dx10_clamp(self) -> bool:
        return bool(_bits(self.compute_pgm_rsrc1, 21, 1))

    @property
    def ieee_mode(self) -> bool:
        return bool(_bits(self.compute_pgm_rsrc1, 23, 1))

    @property
    def fp16_overflow(self) -> bool:
        return bool(_bits(self.compute_pgm_rsrc1, 26, 1))

    @property
    def enable_private_segment(self) -> bool:
        return bool(_bits(self.compute_pgm_rsrc2, 0, 1))

    @property
    def user_sgpr_count(self) -> int:
        return _bits(self.compute_pgm_rsrc2, 1, 5)

    @property
    def workitem_id_dimensions(self) -> int:
        """How many of x, y, z are packed into v0, 10 bits each: 1, 2 or 3."""
        return min(_bits(self.compute_pgm_rsrc2, 11, 2), 2) + 1

    @property
    def wavefront_size32(self) -> bool:
        return bool(_bits(self.kernel_code_properties, 10, 1))

    @property
    def uses_dynamic_stack(self) -> bool:
        return bool(_bits(self.kernel_code_properties, 11, 1))

    @property
    def kernarg_preload_dwords(self) -> int:
        """Kernarg words that the command processor puts into SGPRs; it then skips the first 256 bytes of code, a fallback."""
        return _bits(self.kernarg_preload, 0, 7)

    @property
    def kernarg_preload_offset_dwords(self) -> int:
        return _bits(self.kernarg_preload, 7, 9)

    @property
    def initial_sgprs(self) -> dict[str, tuple[int, int]]:
        """What the SGPRs hold at entry: name -> (first register, number of registers), in hardware order."""
        user = [(name, count) for name, bit, count in _USER_SGPRS if _bits(self.kernel_code_properties, bit, 1)]
        user.append(("kernarg_preload", self.kernarg_preload_dwords))
        system = [(name, 1) for name, bit in _SYSTEM_SGPRS if _bits(self.compute_pgm_rsrc2, bit, 1)]
        placed: dict[str, tuple[int, int]] = {}
        for first, group in ((0, user), (self.user_sgpr_count, system)):
            for name, count in group:
                if count:
                    placed[name] = (first, count)
                first += count
        return placed


# (name, bit of kernel_code_properties, registers), in the order in which the hardware places them.
_USER_SGPRS = (
    ("private_segment_buffer", 0, 4),
    ("dispatch_ptr", 1, 2),
    ("queue_ptr", 2, 2),
    ("kernarg_segment_ptr", 3, 2),
    ("dispatch_id", 4, 2),
    ("flat_scratch_init", 5, 2),
    ("private_segment_size", 6, 1),
)
# (name, bit of compute_pgm_rsrc2). gfx950 has architected flat scratch: no SGPR holds a scratch wave offset.
_SYSTEM_SGPRS = (("workgroup_id_x", 7), ("workgroup_id_y", 8), ("workgroup_id_z", 9), ("workgroup_info", 10))
