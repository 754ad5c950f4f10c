"""module.hip of each family of HIP kernels: the file that tools compile is what the backend compiles at run time."""

import re
from pathlib import Path

import pytest

from kernels import hip_backend
from kernels.nvfp4_msa import hip_backend as nvfp4_backend

KERNELS = Path(__file__).parents[2] / "kernels"
FAMILIES = {
    "hip": (hip_backend, hip_backend.tuned_traits()),
    "nvfp4_msa/hip": (nvfp4_backend, nvfp4_backend.HIP_TRAITS_OF_MODULE),
}


def included(text: str) -> list[str]:
    return re.findall(r'^#include "(.*)"$', text, re.MULTILINE)


@pytest.mark.parametrize("folder", FAMILIES)
def test_the_sources_and_their_order_are_the_backends(folder):
    device, host = (KERNELS / folder / "module.hip").read_text().split("#ifdef INSTANTIATIONS")
    sources = {name: (KERNELS / folder / name).read_text() for name in included(device)}
    assert [(Path(name).name, text) for name, text in sources.items()] == list(FAMILIES[folder][0].HIP_KERNEL_SOURCES.items())
    assert [Path(name).name for name in included(host)] == ["arguments.h", "launch.hip", "launch_table.hip"]


@pytest.mark.parametrize("folder", FAMILIES)
def test_no_source_of_the_folder_is_left_out(folder):
    sources = {path.name for path in (KERNELS / folder).glob("*.hip")} - {"module.hip"}
    assert sources <= {Path(name).name for name in included((KERNELS / folder / "module.hip").read_text())}


@pytest.mark.parametrize("folder", FAMILIES)
def test_the_kernels_are_those_that_dispatch_reaches(folder):
    named = re.findall(r"^KERNEL\((.*)\)$", (KERNELS / folder / "module.hip").read_text(), re.MULTILINE)
    assert named == [traits.initializer() for traits in FAMILIES[folder][1]]
