"""What a compute unit of gfx950 has, and how many waves fit.

Sources: AMD's "CDNA4 ISA" and "CDNA3 ISA" documents (register file, LDS), LLVM's AMDGPUBaseInfo.cpp for the granules.
"""

from __future__ import annotations

from dataclasses import dataclass

WAVE_SIZE = 64
SIMDS_PER_CU = 4
MAX_WAVES_PER_SIMD = 8
MAX_WORKGROUPS_PER_CU = 16  # of more than one wave
VGPRS_PER_LANE = 512  # v and a registers together, for the waves of one SIMD
VGPR_GRANULE = 8
SGPRS_FOR_FULL_OCCUPANCY = 100  # of a wave, VCC and the like included; with more only 7 waves fit
LDS_BYTES_PER_CU = 160 * 1024
LDS_GRANULE_BYTES = 1280


@dataclass(frozen=True)
class Occupancy:
    """Waves that a SIMD can hold at once, and the resource that allows no more."""

    waves_per_simd: int
    limited_by: str  # "vgpr", "sgpr", "lds" or "hardware"


def round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def waves_of(workgroup_size: int) -> int:
    """Waves in a workgroup of so many work-items."""
    return -(-workgroup_size // WAVE_SIZE)


def vgpr_limit(workgroup_size: int) -> int:
    """VGPRs a lane may have so that one workgroup of that size still fits a CU."""
    waves_per_simd = -(-waves_of(workgroup_size) // SIMDS_PER_CU)
    return VGPRS_PER_LANE // waves_per_simd // VGPR_GRANULE * VGPR_GRANULE


def occupancy(vgprs: int, sgprs: int, lds_bytes: int, workgroup_size: int) -> Occupancy:
    """Whole workgroups are placed on a CU, their waves spread over its SIMDs.

    vgprs: allocated per lane, AGPRs included; sgprs: per wave; lds_bytes: per workgroup, static and dynamic.
    """
    waves = waves_of(workgroup_size)
    waves_per_simd = {
        "hardware": MAX_WAVES_PER_SIMD,
        "vgpr": VGPRS_PER_LANE // max(round_up(vgprs, VGPR_GRANULE), VGPR_GRANULE),
        "sgpr": MAX_WAVES_PER_SIMD if sgprs <= SGPRS_FOR_FULL_OCCUPANCY else MAX_WAVES_PER_SIMD - 1,
    }
    workgroups = {name: count * SIMDS_PER_CU // waves for name, count in waves_per_simd.items()}
    if waves > 1:
        workgroups["hardware"] = min(workgroups["hardware"], MAX_WORKGROUPS_PER_CU)
    if lds_bytes:
        workgroups["lds"] = LDS_BYTES_PER_CU // round_up(lds_bytes, LDS_GRANULE_BYTES)
    limiting = min(workgroups, key=lambda name: workgroups[name])
    return Occupancy(-(-workgroups[limiting] * waves // SIMDS_PER_CU), limiting)
