"""dispatch.yml edited in place: one entry changes, everything else stays byte for byte."""

import difflib
from pathlib import Path

import pytest
import yaml

from sweep.errors import TableError
from sweep.table import Change, DispatchTable
from sweep.variant import Machine, Shape, Variant

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = """\
# A heading.
mla:
  H200:
  # over the first
  - shape: [4, 1, 1024, 16]  # small
    backend: triton
    params: {format: bf16, block_n: 64}
    evidence: {device: NVIDIA H200, date: '2026-11-30', median_ns: 11456}
  - shape: [64, 1, 8192, 16]
    backend: aiter
    params: {page_size: 8, fast_mode: false}
  - shape: [64, 1, 8192, 16]
    backend: hip   # for machines without AITER
    params: {num_kv_splits: 8}
  # Not measured.
  gfx950:
  - shape: [4, 1, 1024, 16]
    backend: hip
    params: {num_kv_splits: 16}
other:
  cpu: []
"""
SMALL, LARGE, NEW = Shape(4, 1, 1024, 16), Shape(64, 1, 8192, 16), Shape(1, 1, 512, 16)
EVIDENCE = {"device": "NVIDIA H200", "median_ns": 9000, "ci95": [0.8, 0.9]}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "dispatch.yml"
    path.write_text(TEXT)
    return DispatchTable(path, "mla")


def changed_lines(table):
    """Lines taken away and added by a write."""
    table.write()
    diff = list(difflib.ndiff(TEXT.splitlines(), table.path.read_text().splitlines()))
    return [line[2:] for line in diff if line[0] == "-"], [line[2:] for line in diff if line[0] == "+"]


def test_an_entry_of_the_same_backend_is_changed_in_place(table):
    table.apply("H200", [Change(SMALL, Variant("triton", {"format": "fp8", "block_n": 32}), EVIDENCE)])
    removed, added = changed_lines(table)
    assert [line.split(":")[0].strip() for line in removed] == ["params", "evidence"]
    assert added == [
        "    params: {format: fp8, block_n: 32}",
        "    evidence: {device: NVIDIA H200, median_ns: 9000, ci95: [0.8, 0.9]}",
    ]


def test_another_backend_goes_first_and_the_old_entry_still_serves_who_lacks_it(table):
    table.apply("H200", [Change(LARGE, Variant("triton", {"block_n": 32}), EVIDENCE)])
    removed, added = changed_lines(table)
    assert removed == []
    assert len(added) == 4
    entries = yaml.safe_load(table.path.read_text())["mla"]["H200"]
    assert [entry["backend"] for entry in entries] == ["triton", "triton", "aiter", "hip"]


def test_a_backend_that_stood_behind_moves_to_the_front_and_stands_once(table):
    table.apply("H200", [Change(LARGE, Variant("hip", {"num_kv_splits": 2}), EVIDENCE)])
    table.write()
    entries = yaml.safe_load(table.path.read_text())["mla"]["H200"]
    assert [(entry["backend"], entry["params"].get("num_kv_splits")) for entry in entries[1:]] == [("hip", 2), ("aiter", None)]


def test_new_shapes_and_new_devices_are_added(table):
    table.apply("H200", [Change(NEW, Variant("triton", {"block_n": 32}), EVIDENCE)])
    table.apply("MI300X", [Change(NEW, Variant("torch", {"chunk": True}), EVIDENCE)])
    removed, _ = changed_lines(table)
    assert removed == []
    data = yaml.safe_load(table.path.read_text())["mla"]
    assert data["H200"][-1]["shape"] == list(NEW)
    assert data["MI300X"][0]["params"] == {"chunk": True}


def test_nothing_to_change_is_no_difference(table):
    assert table.diff() == ""
    table.write()
    assert table.path.read_text() == TEXT


def test_the_difference_is_a_unified_diff(table):
    table.apply("H200", [Change(SMALL, Variant("triton", {"format": "fp8"}), EVIDENCE)])
    assert table.diff().startswith("--- a/dispatch.yml\n+++ b/dispatch.yml\n@@")
    assert "+    params: {format: fp8}" in table.diff()


def test_the_repository_s_table_survives_a_rewrite_byte_for_byte(tmp_path):
    text = (ROOT / "configs" / "dispatch.yml").read_text()
    (tmp_path / "dispatch.yml").write_text(text)
    table = DispatchTable(tmp_path / "dispatch.yml", "amd-mixed-mla")
    assert table.diff() == ""


@pytest.mark.parametrize(
    ("machine", "label"),
    [
        (Machine("NVIDIA H200", "sm_90", "cuda"), "H200"),
        (Machine("AMD Instinct MI355X", "gfx950", "hip"), "gfx950"),
        (Machine("NVIDIA GeForce RTX 4090", "sm_89", "cuda"), "4090"),
        (Machine("Some Card", "sm_99", "cuda"), "sm_99"),
        (Machine("AMD EPYC 9654 (2 cores)", "x86_64", "cpu"), "cpu"),
    ],
)
def test_a_machine_s_entries_stand_under_the_name_that_dispatch_looks_up(table, machine, label):
    assert table.label_for(machine) == label


def test_the_first_entry_of_a_shape_is_the_one_that_serves(table):
    assert table.entry("H200", LARGE) == Variant("aiter", {"page_size": 8, "fast_mode": False})
    assert table.entry("H200", NEW) is None
    assert table.entry("nowhere", SMALL) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mla: [", "cannot be read"),
        ("other: {}", "has no table `mla`"),
        ("mla: 3", "has no table `mla`"),
        ("mla: {H200: [{shape: [1, 2], backend: x, params: {}}]}", "H200: entry 1 lacks"),
        ("mla: {H200: [{shape: [1, 2, 3, 4], params: {}}]}", "H200: entry 1 lacks"),
        ("mla: {H200: 7}", "H200: entry 1 lacks"),
    ],
)
def test_a_table_that_is_wrong_is_named_in_one_line(tmp_path, text, message):
    (tmp_path / "dispatch.yml").write_text(text)
    with pytest.raises(TableError) as error:
        DispatchTable(tmp_path / "dispatch.yml", "mla")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(TableError, match="No such file"):
        DispatchTable(tmp_path / "dispatch.yml", "mla")
