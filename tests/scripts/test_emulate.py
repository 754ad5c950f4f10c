"""The emulation command's choice of cases, and the real machine's command where there is none."""

import pytest
import torch

from scripts import emulate, on_mi355x


def test_every_dispatched_kernel_and_official_shape_has_cases(capsys):
    assert emulate.main(["--list"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert len(set(names)) == len(names)
    assert sum(name.startswith("official ") for name in names) == 8
    cases = emulate.all_cases()
    assert {case.traits for case in cases} >= {*emulate.tuned_traits(), *emulate.VARIANTS.values()}


def test_a_text_that_no_case_has_is_refused(capsys):
    with pytest.raises(SystemExit) as exit:
        emulate.main(["--only", "nowhere"])
    assert exit.value.code == 2
    assert "--list shows them" in capsys.readouterr().err


def test_one_case_is_run_and_shown(capsys):
    assert emulate.main(["--only", "DIRECT_CVT: constant"]) == 0
    assert "1 cases, 10 runs, 0 wrong" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_the_card_the_real_run_says_what_to_do_instead(capsys):
    assert on_mi355x.main([]) == 2
    assert "without one run scripts/emulate.py" in capsys.readouterr().out
