"""min_bytes and bytes_by_format: the bytes behind the floors."""

import pytest

from reference import BYTES_PER_KV_ROW, FORMATS, CaseSpecError, bytes_by_format, generate_input, min_bytes

# The public roofline of an MI355X (8 TB/s), microseconds: batch, keys -> bf16, fp8, mxfp4
ROOFLINE_US = {
    (4, 1024): (0.61, 0.31, 0.17),
    (4, 8192): (4.74, 2.38, 1.27),
    (32, 1024): (4.86, 2.50, 1.39),
    (32, 8192): (37.9, 19.0, 10.2),
    (64, 1024): (9.72, 5.00, 2.79),
    (64, 8192): (75.8, 38.0, 20.3),
    (256, 1024): (38.9, 20.0, 11.1),
    (256, 8192): (303, 152, 81.3),
}


@pytest.mark.parametrize(("shape", "microseconds"), ROOFLINE_US.items())
def test_official_cases_have_the_public_roofline(shape, microseconds):
    spec = {"batchsize": shape[0], "qseqlen": 1, "kvseqlen": shape[1], "seed": 1}
    found = [min_bytes(spec, name) / 8e12 * 1e6 for name in FORMATS]
    assert found == pytest.approx(microseconds, rel=0.01, abs=0.005)


def test_a_kv_row_is_as_long_as_its_tensors_say():
    kv_data = generate_input(1, 1, 10, 1, device="cpu")[1]
    mxfp4_bytes = sum(part.nbytes for part in kv_data["mxfp4"])
    found = {"bf16": kv_data["bf16"].nbytes, "fp8": kv_data["fp8"][0].nbytes, "mxfp4": mxfp4_bytes}
    assert found == {name: 10 * size for name, size in BYTES_PER_KV_ROW.items()}
    assert BYTES_PER_KV_ROW == {"bf16": 1152, "fp8": 576, "mxfp4": 306}


def test_ragged_lengths_head_counts_and_query_tokens_count():
    spec = {"batchsize": 5, "qseqlen": 3, "kvseqlen": 60, "seed": 8, "kvmin": 0, "numheads": 32, "dist": "large"}
    q, kv_data, _, kv_indptr, _ = generate_input(**spec, device="cpu")
    output_bytes = 5 * 3 * 32 * 512 * 2
    assert min_bytes(spec, "bf16") == q.nbytes + kv_data["bf16"].nbytes + output_bytes
    assert min_bytes(spec, "fp8") == q.nbytes + int(kv_indptr[-1]) * 576 + output_bytes


def test_the_cheapest_format_is_the_default():
    spec = {"batchsize": 2, "qseqlen": 1, "kvseqlen": 100, "seed": 1}
    assert min_bytes(spec) == bytes_by_format(spec)["mxfp4"] == min(bytes_by_format(spec).values())


def test_an_unknown_format_is_named():
    with pytest.raises(CaseSpecError, match="format: int4 is unknown; use one of bf16, fp8, mxfp4"):
        min_bytes({"batchsize": 2, "qseqlen": 1, "kvseqlen": 100, "seed": 1}, "int4")
