"""The worked example of gfx950/README.md: the kernel is right, and each of the five breaks is caught at its source line."""

from __future__ import annotations

import pytest

from gfx950.examples import scores

pytestmark = pytest.mark.usefixtures("toolchain")


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(scores.SOURCE.read_text().splitlines(), 1) if text in line)


# break -> (kind of finding, where it is seen, the other place it names)
EXPECTED = {
    "wait": ("lds-dma-in-flight", "bf16x8*)&shared.keys", "raw_ptr_buffer_load_lds"),
    "lds": ("lds-out-of-bounds", "shared.largest[wave + 1]", None),
    "barrier": ("lds-race", "float best = shared.largest[0][tid]", "shared.largest[wave][4 * group + r] = best"),
    "shuffle": ("inactive-lane", "__shfl_xor", None),
    "hazard": ("hazard", 'asm volatile("v_mul_f32', "__builtin_amdgcn_mfma"),
}


@pytest.mark.parametrize("n", [64, 100, 1])
def test_the_kernel_is_right(n):
    found, verdict = scores.run(n=n)
    assert found == []
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("name", scores.BREAKS)
def test_each_break_is_caught_at_its_line(name):
    kind, here, other = EXPECTED[name]
    _, verdict = scores.run(name)
    assert not verdict.ok
    places = {(finding.line, finding.other_line) for finding in verdict.findings if finding.kind == kind}
    wanted = (f"scores.hip:{line_of(here)}", f"scores.hip:{line_of(other)}" if other else "")
    assert any(a.endswith(wanted[0]) and b.endswith(wanted[1]) for a, b in places), str(verdict)


@pytest.mark.parametrize("name", scores.BREAKS)
def test_the_readme_quotes_the_same_lines(name):
    kind, here, other = EXPECTED[name]
    readme = (scores.SOURCE.parents[1] / "README.md").read_text()
    section = readme.split(f"(`{name}`)" if name != "wait" else "scores wait")[1].split("**")[0]
    assert kind in section
    for text in filter(None, (here, other)):
        assert f"scores.hip:{line_of(text)}" in section


def test_the_hazard_is_also_found_without_running():
    found, _ = scores.run("hazard")
    assert {finding.check for finding in found} == {"hazard/mfma-read", "hazard/mfma-write"}
    assert {finding.line for finding in found} == {line_of('asm volatile("v_mul_f32')}


def test_as_a_program(capsys):
    assert scores.main([""]) == 0
    assert "right in" in capsys.readouterr().out
    assert scores.main(["shuffle"]) == 1
    assert "inactive-lane" in capsys.readouterr().out
