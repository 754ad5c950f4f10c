"""utils.py: the helpers that public evaluators import."""

import os
import random

import numpy as np
import pytest
import torch

import utils


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_set_seed_repeats_every_generator():
    utils.set_seed(3)
    first = draws()
    utils.set_seed(3)
    assert draws() == first
    utils.set_seed(4)
    assert draws() != first


def test_verbose_allclose_passes_with_the_largest_error():
    expected = torch.tensor([1.0, 2.0])
    assert utils.verbose_allclose(expected + 0.5, expected, atol=0.5) == (True, ["Maximum error: 0.5"])


def test_verbose_allclose_lists_the_first_mismatches():
    ok, lines = utils.verbose_allclose(torch.arange(4.0), torch.zeros(4), max_print=2)
    assert not ok
    assert lines == [
        "Number of mismatched elements: 3",
        "ERROR at (1,): 1.0 0.0",
        "ERROR at (2,): 2.0 0.0",
        "... and 1 more mismatched elements.",
    ]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_special_values_match_their_like_only(value):
    special, plain = torch.tensor([value]), torch.tensor([1.0])
    assert not utils.verbose_allclose(special, plain, rtol=1.0)[0]
    assert not utils.verbose_allclose(plain, special)[0]
    assert utils.verbose_allclose(special, special)[0]


def test_shapes_have_to_agree():
    assert utils.verbose_allclose(torch.zeros(2), torch.zeros(3)) == (False, ["SIZE MISMATCH"])
    assert utils.verbose_allequal(torch.zeros(2), torch.zeros(3)) == (False, ["SIZE MISMATCH"])


def test_verbose_allequal_is_exact():
    assert utils.verbose_allequal(torch.ones(2), torch.ones(2)) == (True, [])
    ok, lines = utils.verbose_allequal(torch.tensor([1, 2]), torch.tensor([1, 3]))
    assert (ok, lines) == (False, ["Number of mismatched elements: 1", "ERROR at (1,): 2 3"])


def test_make_match_reference_makes_a_check():
    check = utils.make_match_reference(lambda data: data * 2, rtol=0.0, atol=0.1)
    data = torch.ones(3)
    assert check(data, data * 2)[0]
    ok, message = check(data, data)
    assert not ok
    assert "\n" not in message


def test_the_deterministic_context_restores_what_it_found(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32)
    with utils.DeterministicContext():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.allow_tf32
    assert (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32) == before
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_get_device_can_be_kept_on_the_cpu():
    assert utils.get_device(use_cuda=False) == torch.device("cpu")
