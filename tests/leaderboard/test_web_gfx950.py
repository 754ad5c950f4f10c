"""The gfx950 report of a submission: which sources it finds, and that the compiler reads nothing of the server's."""

import pytest

from gfx950.errors import Gfx950Error
from gfx950.tools import find_tool
from harness import landlock
from leaderboard.web import gfx950_compile
from leaderboard.web.gfx950_compile import BUSY, hip_sources, resources_of

KERNEL = "\n#include <hip/hip_runtime.h>\n__global__ void scale(float* x, float by) { x[threadIdx.x] *= by; }\n"


def submission(*sources: str) -> str:
    return "import torch\n" + "".join(f"S{index} = {source!r}\n" for index, source in enumerate(sources))


def test_sources_are_the_strings_with_kernels():
    found = hip_sources(submission("no kernel\n", KERNEL), "s.py")
    assert [(source.name, source.text) for source in found] == [("String in line 3", KERNEL)]
    assert hip_sources(KERNEL, "s.cu")[0].text == KERNEL
    assert hip_sources("x = 1", "s.cu") == []


@pytest.mark.parametrize("code", ["def (", "x = '\0'", "(" * 5000, "__global__"])
def test_what_python_cannot_parse_holds_none(code):
    assert hip_sources(code, "s.py") == []


def has_clang() -> bool:
    try:
        find_tool("clang", "it compiles HIP for gfx950")
    except Gfx950Error:
        return False
    return True


needs_compiler = pytest.mark.skipif(not has_clang(), reason="clang for gfx950 is not installed (make toolchain)")
needs_landlock = pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock")


@needs_compiler
@needs_landlock
def test_a_kernels_resources():
    (listing,) = resources_of("1", submission(KERNEL), "s.py")
    assert listing.error == ""
    (kernel,) = listing.kernels
    assert kernel.name.startswith("scale")
    assert kernel.vgprs > 0
    assert kernel.spilled == 0


READERS = (
    '#include "{path}"\n',
    '__global__ void k() {{ asm volatile(".incbin \\"{path}\\""); }}\n',
    'const char x[] = {{\n#embed "{path}"\n}};\n',
)


@needs_compiler
@needs_landlock
@pytest.mark.parametrize("how", READERS)
def test_the_compiler_reads_no_file_of_the_servers(tmp_path, how):
    path = tmp_path / "secret.txt"
    path.write_text("sesame\n")
    (listing,) = resources_of(how, submission(KERNEL + how.format(path=path)), "s.py")
    assert listing.kernels == ()
    assert "sesame" not in listing.error
    assert listing.error


def test_without_landlock_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    (listing,) = resources_of("2", submission(KERNEL), "s.py")
    assert "python -m gfx950 report" in listing.error


def test_one_compiles_at_a_time():
    with gfx950_compile._one_at_a_time:
        (listing,) = resources_of("3", submission(KERNEL), "s.py")
    assert listing.error == BUSY


@needs_compiler
@needs_landlock
def test_a_source_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(gfx950_compile, "TIMEOUT_S", 0.001)
    (listing,) = resources_of("4", submission(KERNEL), "s.py")
    assert "took longer" in listing.error
