"""What ncu recorded, read back: units, the shares of waits, and records that are not what they should be."""

import csv
import io
import json

import pytest

from scripts import cuda_counters
from scripts.cuda_counters import CASES, PERCENT, WAIT, WAIT_END, CannotCount, parse_raw

RATIOS = {"barrier": "3", "wait": "5", "selected": "1", "mio": "1"}
ROW = {
    "ID": ("", "0"),
    "Kernel Name": ("", "void mla_direct<Direct<0, 1>>(Args)"),
    "launch__grid_size": ("", "1,024"),
    "launch__block_size": ("", "288"),
    "gpu__time_duration.sum": ("us", "12.5"),
    "dram__bytes_read.sum": ("Mbyte", "20"),
    "sm__cycles_active.avg": ("cycle", "5,000"),
    "sm__cycles_elapsed.max": ("cycle", "20,000"),
    **{metric: ("%", str(10.0 + number)) for number, metric in enumerate(PERCENT.values())},
    **{f"{WAIT}{name}{WAIT_END}": ("inst", ratio) for name, ratio in RATIOS.items()},
    f"{WAIT}barrier_not_issued{WAIT_END}": ("inst", "90"),
}  # fmt: skip


def record(row: dict[str, tuple[str, str]], noise: str = "==PROF== Connected\n") -> str:
    """ncu's CSV: names, units, values, and what it says besides."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([list(row), *zip(*row.values(), strict=True)])
    return noise + text.getvalue()


def test_a_record_is_read():
    counted = parse_raw(record(ROW), 32, 1024)
    assert (counted.batch, counted.kv, counted.blocks, counted.threads) == (32, 1024, 1024, 288)
    assert counted.kernel == "mla_direct<Direct<0, 1>>(Args)"
    assert (counted.duration_ns, counted.read_bytes, counted.busy) == (12_500, 20e6, 0.25)
    assert counted.percent == dict(zip(PERCENT, (10.0, 11.0, 12.0, 13.0, 14.0), strict=True))
    assert counted.waits == {"wait": 0.5, "barrier": 0.3, "selected": 0.1}


@pytest.mark.parametrize(("unit", "factor"), [("ns", 1), ("us", 1e3), ("ms", 1e6)])
def test_units(unit, factor):
    assert parse_raw(record({**ROW, "gpu__time_duration.sum": (unit, "2")}), 4, 1024).duration_ns == 2 * factor


@pytest.mark.parametrize("text", ["", "==ERROR== no kernel was profiled\n", record({}, noise="")])
def test_no_launch(text):
    with pytest.raises(CannotCount, match="4x8192: ncu recorded no launch"):
        parse_raw(text, 4, 8192)


@pytest.mark.parametrize("value", [None, "n/a", ""])
def test_a_metric_that_is_missing_is_named(value):
    row = {**ROW, PERCENT["alu"]: ("%", value)}
    if value is None:
        del row[PERCENT["alu"]]
    with pytest.raises(CannotCount, match=r"pipe_alu.*--set full"):
        parse_raw(record(row), 4, 1024)


def test_a_folder_of_records_becomes_a_table(tmp_path, capsys):
    for batch, kv in CASES:
        (tmp_path / f"{batch}x{kv}.csv").write_text(record(ROW))
    assert cuda_counters.main(["--raw", str(tmp_path), "--json", str(tmp_path / "out.json")]) == 0
    assert [(case["batch"], case["kv"]) for case in json.loads((tmp_path / "out.json").read_text())["cases"]] == list(CASES)
    assert "| 4 x 1024 | 1024 x 288 | 12.5 | 1600 |" in capsys.readouterr().out


def test_what_was_read_before_a_failure_is_kept(tmp_path, capsys):
    (tmp_path / "4x1024.csv").write_text(record(ROW))
    assert cuda_counters.main(["--raw", str(tmp_path), "--json", str(tmp_path / "out.json")]) == 2
    assert len(json.loads((tmp_path / "out.json").read_text())["cases"]) == 1
    assert "4x8192.csv: No such file or directory; --raw wants one file a case" in capsys.readouterr().err


def test_without_ncu(monkeypatch, capsys):
    monkeypatch.setattr(cuda_counters.shutil, "which", lambda name: None)
    monkeypatch.setattr(cuda_counters.Path, "exists", lambda path: False)
    assert cuda_counters.main([]) == 2
    assert "ncu is not on PATH" in capsys.readouterr().err


def test_what_a_failing_ncu_said(monkeypatch, capsys):
    monkeypatch.setattr(cuda_counters.shutil, "which", lambda name: "/bin/false")
    assert cuda_counters.main([]) == 2
    assert "4x1024: ncu failed" in capsys.readouterr().err
