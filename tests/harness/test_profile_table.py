"""The table of a profile: what is counted, what is shown, and what stands below."""

import pytest
from terminal_results import check_snapshot, console_of

from harness.profile_table import SHOWN, shorten, tabulate
from harness.render_plain import profile_lines
from harness.result import CaseResult, Official, Profile, ProfileRow, Status
from harness.terminal.profile import profile_table

KERNEL = "void mla::decode<16, 64, fp8_e4m3, true>(float const*, __nv_fp8_e4m3 const*, int const*, mla::Params<576, 512, 16>)"
GPU = Profile(
    3, "results/profile/amd-mixed-mla-case1-2.json",
    (ProfileRow(KERNEL, 3, 60_000, 0), ProfileRow("combine", 6, 20_000, 0), ProfileRow("aten::empty", 9, 0, 5_000)),
)  # fmt: skip
CPU = Profile(2, "t.json", (ProfileRow("aten::mm", 4, 0, 3_000), ProfileRow("aten::softmax", 2, 0, 9_000)))


def test_shares_are_of_device_time_where_there_is_any():
    table = tabulate(GPU)
    assert (table.where, table.total_ns) == ("device", 80_000)
    assert [(row.share, row.calls) for row in table.rows] == [(0.75, 1.0), (0.25, 2.0)]


def test_on_a_cpu_host_time_is_shared():
    table = tabulate(CPU)
    assert table.where == "host"
    assert [(row.name, row.share, row.calls) for row in table.rows] == [("aten::softmax", 0.75, 1.0), ("aten::mm", 0.25, 2.0)]


def test_what_is_not_shown_is_summed():
    rows = tuple(ProfileRow(f"kernel {number}", 1, 1_000, 0) for number in range(SHOWN + 3))
    assert tabulate(Profile(1, "t.json", rows)).below == ("3 more rows, 3.000 us together",)


def test_an_empty_profile():
    table = tabulate(Profile(1, "t.json", ()))
    assert (table.rows, table.below, table.total_ns) == ((), (), 0)


@pytest.mark.parametrize("length", [5, 100, 101, 300])
def test_long_names_keep_both_ends(length):
    name = "".join(chr(97 + index % 26) for index in range(length))
    short = shorten(name)
    assert len(short) <= 100
    assert (short == name) is (length <= 100)
    assert (short[:20], short[-20:]) == (name[:20], name[-20:])


@pytest.mark.parametrize("width", [120, 60])
def test_on_a_terminal(width):
    console = console_of(width)
    console.print(profile_table(GPU))
    check_snapshot(f"profile-{width}.txt", console.export_text())


def test_plain():
    lines = profile_lines(CaseResult({"size": 1}, Status.PASS, official=Official(True), profile=CPU))
    assert lines == [
        "   host us  share   calls  operator",
        "     9.000    75%       1  aten::softmax",
        "     3.000    25%       2  aten::mm",
        "trace: t.json",
    ]
