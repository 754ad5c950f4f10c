"""The page dump: it agrees with the writer about every byte, and prints values."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from problems.nvfp4_msa import dump, pages

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("order", pages.V_SCALES)
def test_places_and_runs_agree_over_a_whole_page(order):
    heads, seen = 3, {}
    for head in range(heads):
        for token in range(128):
            for run in dump.runs_of(token, head, heads, order):
                width = 128 // run.count
                for byte in range(run.count):
                    dims = range(byte * width, (byte + 1) * width)
                    seen[run.offset + byte * run.step] = dump.Place(run.section, head, token, dims)
    assert sorted(seen) == list(range(pages.page_bytes(heads)))
    assert all(dump.place_of(offset, heads, order) == place for offset, place in list(seen.items())[::7])


@pytest.mark.parametrize("order", pages.V_SCALES)
def test_a_byte_that_is_changed_changes_what_the_dump_says(order):
    cache = torch.zeros(pages.cache_shape(1, 2), dtype=torch.uint8)
    for offset in (0, 8191, 16384, 18000, 18432, 34815, 34816, 35001, 36863):
        changed = cache.clone()
        changed.view(-1)[offset] = 0x35
        place = dump.place_of(offset, 2, order)
        part = getattr(pages.read_pages(changed, order), place.section)
        assert part.nonzero().tolist() == [[0, place.head, place.token, place.dims.start // len(place.dims)]]


def test_prints_sections_places_and_values(capsys, tmp_path):
    assert dump.main(["--heads", "4"]) == 0
    assert "69632   73728  v_scales" in capsys.readouterr().out
    assert dump.main(["--heads", "4", "--where", "71001"]) == 0
    assert capsys.readouterr().out.strip() == (
        "byte 71001: v_scales (swizzled), head 1, token 41, scale of dims 96 to 111"
    )
    data, scales = torch.full((2, 1, 128, 64), 0x72, dtype=torch.uint8), torch.full((2, 1, 128, 8), 0x38, dtype=torch.uint8)
    cache = pages.write_pages(pages.Heads(data, scales, data, scales))
    torch.save(cache, tmp_path / "cache.pt")
    (tmp_path / "cache.bin").write_bytes(cache.numpy().tobytes())
    for name in ("cache.pt", "cache.bin"):
        assert dump.main(["--heads", "1", "--token", "9", "--page", "1", "--file", str(tmp_path / name)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert sum(line.endswith("codes 72 72 72 72 72 72 72 72  1 6 1 6 1 6 1 6 1 6 1 6 1 6 1 6") for line in lines) == 16


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--where", "36864"], "has bytes 0 to 36863"),
        (["--where", "-1"], "has bytes 0 to 36863"),
        (["--token", "128"], "has tokens 0 to 127 of heads 0 to 1"),
        (["--token", "1", "--head", "2"], "has tokens 0 to 127 of heads 0 to 1"),
        (["--token", "1", "--file", "missing.bin"], "missing.bin: No such file"),
        (["--token", "1", "--file", "short.bin"], "100 bytes, no whole number of pages of 36,864 bytes; is --heads 2 right?"),
        (["--token", "1", "--page", "1", "--file", "page.bin"], "page 1: page.bin has pages 0 to 0"),
    ],
)
def test_a_mistake_is_one_line(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.bin").write_bytes(b"x" * 100)
    (tmp_path / "page.bin").write_bytes(b"x" * 36864)
    assert dump.main(["--heads", "2", *arguments]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


def test_runs_as_a_module():
    command = [sys.executable, "-m", "problems.nvfp4_msa.dump", "--heads", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert "18,432 bytes" in run.stdout, run.stderr
