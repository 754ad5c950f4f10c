"""scripts/bench_flash_mla.py on a machine without a GPU."""

import pytest
import torch

from scripts import bench_flash_mla


def test_without_a_gpu_it_says_so_before_it_compiles_anything(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(bench_flash_mla, "compile_all", lambda shapes: pytest.fail("compiled"))
    with pytest.raises(SystemExit) as stop:
        bench_flash_mla.main(["--out", str(tmp_path / "x.json")])
    assert stop.value.code == 2
    assert "no GPU on this machine" in capsys.readouterr().err
