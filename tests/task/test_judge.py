"""judge: honest kernels pass on every format and distribution, wrong ones fail at the official lengths."""

import json

import pytest
import torch

from reference import (
    DISTRIBUTIONS,
    FORMATS,
    Q_FORMATS,
    STRICT_BOUNDS,
    generate_input,
    judge,
    judge_strict,
    kv_lengths,
    ref_kernel,
)
from scripts.honest_kernels import HonestKernel, honest_kernels
from scripts.wrong_kernels import DAMAGES, MISTAKES

OFFICIAL_SHAPES = [(batch, kv) for batch in (4, 32, 64, 256) for kv in (1024, 8192)]


def quick(kv_format: str, q_format: str = "bf16") -> HonestKernel:
    """Whole sequences at a time, bf16 probabilities."""
    return HonestKernel(kv_format, q_format, p_dtype=torch.bfloat16, tile=1 << 20)


@pytest.mark.parametrize("dist", DISTRIBUTIONS)
@pytest.mark.parametrize("kv_format", FORMATS)
def test_honest_kernels_pass(kv_format, dist):
    data = generate_input(3, 2, 400, 21, kvmin=0, dist=dist, device="cpu")
    for name, kernel in honest_kernels(kv_format).items():
        verdict = judge_strict(data, kernel(data))
        assert verdict["ok"], (name, verdict["message"])
        assert verdict["format"] == kv_format, name


@pytest.mark.parametrize("dist", DISTRIBUTIONS)
def test_honest_kernels_pass_at_8192_keys(dist):
    data = generate_input(1, 1, 8192, 22, dist=dist, device="cpu")
    fp8_p = HonestKernel("fp8", "fp8", p_dtype=torch.float8_e4m3fn, p_scale=448.0, tile=512, num_kv_splits=3)
    for kernel in (quick("bf16"), quick("mxfp4", "fp8_cast"), fp8_p):
        verdict = judge_strict(data, kernel(data))
        assert verdict["ok"], verdict["message"]
        assert verdict["format"] == kernel.kv_format


@pytest.mark.parametrize("q_format", Q_FORMATS)
@pytest.mark.parametrize("kv_format", FORMATS)
def test_every_reading_of_the_inputs_is_recognised(kv_format, q_format):
    data = generate_input(2, 1, 300, 23, dist="large", device="cpu")
    verdict = judge_strict(data, quick(kv_format, q_format)(data))
    assert verdict["ok"], verdict["message"]
    assert (verdict["format"], verdict["q_format"]) == (kv_format, q_format)
    assert verdict["rows_by_format"] == {f"{kv_format}/{q_format}": 32}


@pytest.mark.parametrize("kvseqlen", [1024, 8192])
@pytest.mark.parametrize("kv_format", FORMATS)
def test_wrong_results_fail(kv_format, kvseqlen):
    data = generate_input(8192 // kvseqlen, 1, kvseqlen, 24, device="cpu")
    kernel = quick(kv_format)
    output = kernel(data)
    assert judge_strict(data, output)["ok"]
    for name, damage in DAMAGES.items():
        assert not judge_strict(data, damage(output))["ok"], name
    for name, mistake in MISTAKES.items():
        assert not judge_strict(data, mistake(kernel, data))["ok"], name


@pytest.mark.slow
@pytest.mark.parametrize(("batchsize", "kvseqlen"), OFFICIAL_SHAPES)
def test_wrong_results_fail_on_every_official_shape(batchsize, kvseqlen):
    data = generate_input(batchsize, 1, kvseqlen, 9823, device="cpu")
    kernel = quick("fp8")
    output = kernel(data)
    assert judge_strict(data, output)["ok"]
    for name, damage in DAMAGES.items():
        assert not judge_strict(data, damage(output))["ok"], name
    for name, mistake in MISTAKES.items():
        assert not judge_strict(data, mistake(kernel, data))["ok"], name


def test_both_verdicts_of_the_reference():
    data = generate_input(2, 1, 64, 25, device="cpu")
    verdicts = judge(data, ref_kernel(data))
    assert verdicts["official"] == {"ok": True, "message": "Maximum error: 0.0"}
    strict = verdicts["strict"]
    assert (strict["ok"], strict["format"], strict["q_format"]) == (True, "fp8", "fp8")
    assert strict["rel_l2_worst"] < 0.005 < strict["rel_l2_to_bf16"]
    assert len(strict["error_per_head"]) == 16
    assert max(strict["error_per_head"]) == strict["rel_l2_worst"]
    assert (strict["first_offending"], strict["message"], strict["nan_count"]) == (None, "", 0)


@pytest.mark.parametrize(("qseqlen", "numheads"), [(4, 16), (1, 32), (2, 128), (1, 1)])
def test_other_head_counts_and_query_lengths(qseqlen, numheads):
    data = generate_input(2, qseqlen, 130, 26, kvmin=1, numheads=numheads, device="cpu")
    verdict = judge_strict(data, quick("bf16")(data))
    assert verdict["ok"], verdict["message"]
    assert len(verdict["error_per_head"]) == numheads


def mixed_output(data, formats: tuple[str, ...]) -> torch.Tensor:
    """The output of a kernel that reads its sequences in these formats by turns."""
    outputs = [quick(kv_format)(data) for kv_format in formats]
    return torch.stack([outputs[i % len(formats)][i] for i in range(len(data[0]))])


def test_a_kernel_may_mix_formats_from_sequence_to_sequence():
    data = generate_input(6, 1, 200, 27, kvmin=100, device="cpu")
    assert judge_strict(data, mixed_output(data, FORMATS))["ok"]
    verdict = judge_strict(data, mixed_output(data, ("bf16", "mxfp4")))
    assert verdict["ok"], verdict["message"]
    assert verdict["rows_by_format"] == {"bf16/bf16": 48, "mxfp4/bf16": 48}


def test_a_wrong_row_among_mixed_formats_is_found():
    data = generate_input(6, 1, 200, 27, kvmin=100, device="cpu")
    output = mixed_output(data, FORMATS)
    output[4, 7] *= 1.1
    verdict = judge_strict(data, output)
    assert not verdict["ok"]
    assert verdict["first_offending"][:2] == [4, 7]


def test_the_first_offending_element_is_named():
    data = generate_input(3, 2, 150, 28, device="cpu")
    output = quick("bf16")(data)
    output[2, 5, 77] += 0.5
    output[4, 1, 3] += 0.5
    verdict = judge_strict(data, output)
    assert verdict["first_offending"] == [2, 5, 77]
    assert verdict["message"].startswith("2 of 96 rows fail; the first is token 2, head 5, worst at dim 77: rel_l2 ")
    assert "\n" not in verdict["message"]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_value_that_is_not_finite_fails_where_it_is(value):
    data = generate_input(2, 1, 100, 29, device="cpu")
    output = quick("fp8")(data)
    output[1, 3, 9] = value
    verdict = judge_strict(data, output)
    assert not verdict["ok"]
    assert verdict["first_offending"] == [1, 3, 9]
    assert verdict["nan_count"] == (1 if value != value else 0)
    assert "not finite" in verdict["message"]
    assert verdict["rel_l2_worst"] is None
    json.dumps(verdict, allow_nan=False)


def test_nan_everywhere_fails():
    data = generate_input(2, 1, 100, 29, device="cpu")
    verdict = judge_strict(data, torch.full((2, 16, 512), torch.nan, dtype=torch.bfloat16))
    assert (verdict["ok"], verdict["nan_count"]) == (False, 2 * 16 * 512)


def test_rows_without_keys_have_to_be_exactly_zero():
    data = generate_input(12, 1, 3, 31, kvmin=0, device="cpu")
    empty = (data[3].diff() == 0).nonzero()[:, 0].tolist()
    output = quick("bf16")(data)
    assert empty
    assert (output[empty] == 0).all()
    assert judge_strict(data, output)["ok"]
    output[empty[0], 2, 5] = 1e-38
    assert judge_strict(data, output)["first_offending"] == [empty[0], 2, 5]


def test_a_batch_without_any_keys():
    seed = next(seed for seed in range(20) if kv_lengths(1, 1, seed, 0) == [0])
    data = generate_input(1, 1, 1, seed, kvmin=0, device="cpu")
    zeros = torch.zeros(1, 16, 512, dtype=torch.bfloat16)
    assert judge(data, zeros)["official"]["ok"]
    assert judge_strict(data, zeros)["ok"]
    assert not judge_strict(data, zeros + 1)["ok"]


def test_rows_of_equal_zeros_in_the_cache():
    q, kv_data, qo_indptr, kv_indptr, config = generate_input(1, 1, 20, 33, device="cpu")
    for part in (kv_data["bf16"], kv_data["fp8"][0], kv_data["mxfp4"][0]):
        part.view(torch.uint8).zero_()
    zeros = torch.zeros(1, 16, 512, dtype=torch.bfloat16)
    assert judge_strict((q, kv_data, qo_indptr, kv_indptr, config), zeros)["ok"]
    assert not judge_strict((q, kv_data, qo_indptr, kv_indptr, config), zeros + 1e-20)["ok"]


def test_the_judge_reads_padded_scales_and_byte_dtypes():
    plain = generate_input(2, 1, 90, 34, device="cpu")
    q, kv_data, qo_indptr, kv_indptr, config = generate_input(2, 1, 90, 34, device="cpu", scale_padding=True)
    kv_data["mxfp4"] = tuple(part.view(torch.uint8) for part in kv_data["mxfp4"])
    output = quick("mxfp4")(plain)
    padded = judge_strict((q, kv_data, qo_indptr, kv_indptr, config), output)
    assert padded == judge_strict(plain, output)
    assert padded["ok"]


@pytest.mark.parametrize("output", [None, torch.zeros(2, 16, 512), torch.zeros(1, 16, 512, dtype=torch.bfloat16)])
def test_a_wrong_type_shape_or_dtype_fails_both_verdicts_in_one_line(output):
    data = generate_input(2, 1, 30, 35, device="cpu")
    verdicts = judge(data, output)
    assert not verdicts["official"]["ok"]
    assert not verdicts["strict"]["ok"]
    assert verdicts["strict"]["message"] == verdicts["official"]["message"] != ""


def test_judging_changes_neither_inputs_nor_output():
    data = generate_input(2, 1, 60, 36, device="cpu")
    output = quick("mxfp4")(data)
    before = [t.clone() for t in (data[0], data[1]["bf16"], output)]
    judge(data, output)
    assert all(torch.equal(a, b) for a, b in zip(before, (data[0], data[1]["bf16"], output), strict=True))


def test_a_row_passes_up_to_its_bound():
    """Scaling a row by 1 + e is a relative L2 error of e; with one key its element errors are no larger."""
    data = generate_input(1, 1, 1, 37, device="cpu")
    output = HonestKernel("fp8")(data).float()
    limit = min(STRICT_BOUNDS["fp8"].rel_l2, STRICT_BOUNDS["fp8"].element_rms)
    assert judge_strict(data, (output * (1 + 0.9 * limit)).bfloat16())["ok"]
    assert not judge_strict(data, (output * (1 + 1.2 * limit)).bfloat16())["ok"]
