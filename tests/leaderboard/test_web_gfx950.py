"""The gfx950 report of a submission: which sources it finds, and that the compiler reads nothing of the server's."""

import sys
from pathlib import Path

import pytest

from gfx950.errors import Gfx950Error
from gfx950.tools import find_tool
from harness import landlock
from leaderboard.web import gfx950_compile
from leaderboard.web.gfx950_compile import BUSY, DIED, hip_sources, resources_of
from leaderboard.web.gfx950_page import PARTS, listed

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
    assert listing.error == listing.rejected == ""
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
    assert "sesame" not in listing.rejected
    assert listing.rejected


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


def job(before: str) -> tuple[str, ...]:
    """The compiling process, after some Python of the test's."""
    rest = "from leaderboard.web.gfx950_job import main; sys.exit(main())"
    return (sys.executable, "-c", f"import sys; {before}; {rest}")


def page_of(code: str, key: str) -> str:
    return "".join(map(str, listed(resources_of(key, code, "s.py"))))


@needs_landlock
@pytest.mark.parametrize("package", ["elftools", "msgpack"])
def test_a_missing_package_is_one_line_said_once(monkeypatch, package):
    monkeypatch.setattr(gfx950_compile, "JOB", job(f"sys.modules[{package!r}] = None"))
    for listing in resources_of(package, submission(KERNEL, KERNEL), "s.py"):
        assert f"lacks the Python package {package}" in listing.error
        assert "\n" not in listing.error
    assert page_of(submission(KERNEL, KERNEL), package).count("lacks the Python package") == 1


@needs_landlock
def test_a_compiling_process_that_breaks_shows_neither_traceback_nor_paths(monkeypatch, caplog):
    monkeypatch.setattr(gfx950_compile, "JOB", job("raise OSError('/secret/place')"))
    (listing,) = resources_of("5", submission(KERNEL), "s.py")
    assert listing.error == DIED
    assert "/secret/place" in caplog.text


@needs_compiler
@needs_landlock
def test_parts_of_a_source_are_one_sentence():
    page = page_of(submission("__global__ void a(Missing x) {}", KERNEL, "__global__ void b(Other y) {}"), "6")
    assert page.count(PARTS.split(";")[0]) == 1
    assert page.count("<details") == 2
    assert "scale" in page


@needs_compiler
@needs_landlock
def test_the_projects_own_submission_is_parts():
    code = (gfx950_compile.ROOT / "submission.py").read_text()
    listings = resources_of("7", code, "submission.py")
    assert listings
    assert all(each.rejected or each.kernels for each in listings)
    page = page_of(code, "7")
    assert page.count(PARTS.split(";")[0]) == 1
    assert str(Path.cwd()) not in page
