"""check_implementation: the public verdict, its 5 % rule and messages; ref_kernel."""

import pytest
import torch

import utils
from reference import ORACLES, Oracles, batches, check_implementation, generate_input, ref_kernel

DATA = generate_input(4, 1, 1024, 4220, device="cpu")
EXPECTED = ref_kernel(DATA)


def public_message(output: torch.Tensor) -> str:
    return utils.match_reference(DATA, output, reference=lambda data: EXPECTED, rtol=0.1, atol=0.1)[1]


def with_mismatches(count: int, value: float = 9.0) -> torch.Tensor:
    """The expected output with `count` elements set far off, spread over it."""
    output = EXPECTED.clone()
    output.view(-1)[torch.linspace(0, output.numel() - 1, count).long()] = value
    return output


@pytest.mark.parametrize("dist", ["normal", "large", "onehot", "constant", "outlier"])
def test_ref_kernel_is_the_exact_result_of_fp8_q_and_fp8_kv(dist):
    data = generate_input(5, 2, 200, 3, kvmin=0, dist=dist, numheads=32, device="cpu")
    output, oracles = ref_kernel(data), Oracles(data)
    assert (output.shape, output.dtype) == ((10, 32, 512), torch.bfloat16)
    for batch in batches(data):
        rows = output[batch.q_rows].double().view(-1, 512)
        errors = oracles.errors(rows, batch, ORACLES.index(("fp8", "fp8")))
        assert errors.rel_l2.max() < 2**-8  # a bf16 output, fp32 inside


def test_the_reference_itself_passes_with_the_public_message():
    assert check_implementation(DATA, EXPECTED) == (True, "Maximum error: 0.0")


def test_an_error_within_the_tolerance_passes_with_the_largest_one():
    output = EXPECTED + 0.09
    ok, message = check_implementation(DATA, output)
    assert ok
    assert message == public_message(output)


@pytest.mark.parametrize(("count", "passes"), [(1, True), (1638, True), (1639, False), (5000, False)])
def test_up_to_five_percent_of_the_elements_may_mismatch(count, passes):
    ok, message = check_implementation(DATA, with_mismatches(count))  # of 32,768
    assert ok is passes
    if passes:
        ratio = f"{count / 32768:.6f}"
        assert message == f"warning: mismatch_ratio={ratio} (<= tol_err_ratio=0.05) with rtol=0.1, atol=0.1"


def test_a_failure_prints_the_lines_of_the_public_check():
    output = with_mismatches(3000)
    ok, message = check_implementation(DATA, output)
    assert not ok
    assert message == public_message(output)
    assert "\n" not in message


def test_all_zeros_pass_at_8192_keys_and_fail_at_1024():
    assert not check_implementation(DATA, torch.zeros_like(EXPECTED))[0]
    long = generate_input(1, 1, 8192, 4220, device="cpu")
    assert check_implementation(long, torch.zeros_like(ref_kernel(long)))[0]


def test_nan_counts_as_a_mismatch():
    assert check_implementation(DATA, with_mismatches(1, torch.nan))[0]
    ok, message = check_implementation(DATA, torch.full_like(EXPECTED, torch.nan))
    assert not ok
    assert message.startswith("Number of mismatched elements: 32768")


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
def test_infinities_count_as_mismatches(value):
    assert not check_implementation(DATA, torch.full_like(EXPECTED, value))[0]


class Lazy(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "output is a NoneType; return a torch.Tensor, bf16 [4, 16, 512]"),
        ([EXPECTED], "output is a list; return a torch.Tensor"),
        (EXPECTED.as_subclass(Lazy), "output is a Lazy; return a torch.Tensor"),
        (EXPECTED[:2], "SIZE MISMATCH: output has shape [2, 16, 512]; return [4, 16, 512]"),
        (EXPECTED.view(4, -1), "SIZE MISMATCH: output has shape [4, 8192]; return [4, 16, 512]"),
        (EXPECTED.float(), "output is torch.float32; return torch.bfloat16"),
        (EXPECTED.to("meta"), "output is on meta; return it on cpu, where the inputs are"),
    ],
)
def test_a_wrong_type_shape_dtype_or_device_is_one_clear_line(output, message):
    ok, found = check_implementation(DATA, output)
    assert not ok
    assert found.startswith(message)
    assert "\n" not in found
