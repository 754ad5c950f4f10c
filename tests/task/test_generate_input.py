"""generate_input: official draws, shapes, ragged lengths, distributions, errors."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from reference import CaseSpecError, generate_input, kv_lengths

ROOT = Path(reference.__file__).parent


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)


def published_input(batchsize: int, qseqlen: int, kvseqlen: int, seed: int) -> dict[str, torch.Tensor]:
    """The published generator's draws and its fp8 quantisation of the whole tensor, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn((batchsize * qseqlen, 16, 576), dtype=torch.bfloat16, generator=generator)
    kv = torch.randn((batchsize * kvseqlen, 1, 576), dtype=torch.bfloat16, generator=generator)
    scale = kv.abs().amax().clamp(min=1e-12) / 448.0
    fp8 = (kv / scale).clamp(min=-448.0, max=448.0).to(torch.float8_e4m3fn)
    return {"q": q, "kv": kv, "fp8": fp8, "scale": scale.float().reshape(1)}


@pytest.mark.parametrize(("batchsize", "qseqlen", "kvseqlen", "seed"), [(4, 1, 1024, 4217), (1, 1, 8192, 4220), (3, 4, 77, 1)])
def test_a_plain_case_is_the_published_one_bit_for_bit(batchsize, qseqlen, kvseqlen, seed):
    expected = published_input(batchsize, qseqlen, kvseqlen, seed)
    q, kv_data, qo_indptr, kv_indptr, _ = generate_input(batchsize, qseqlen, kvseqlen, seed, device="cpu")
    assert torch.equal(q, expected["q"])
    assert torch.equal(kv_data["bf16"], expected["kv"])
    assert torch.equal(bits(kv_data["fp8"][0]), bits(expected["fp8"]))
    assert torch.equal(kv_data["fp8"][1], expected["scale"])
    assert qo_indptr.tolist() == [i * qseqlen for i in range(batchsize + 1)]
    assert kv_indptr.tolist() == [i * kvseqlen for i in range(batchsize + 1)]


@pytest.mark.parametrize("dist", reference.DISTRIBUTIONS)
def test_shapes_and_dtypes_are_those_of_task_py(dist):
    q, kv_data, qo_indptr, kv_indptr, config = generate_input(3, 2, 40, 7, kvmin=0, dist=dist, numheads=32, device="cpu")
    total_kv = int(kv_indptr[-1])
    assert (q.shape, q.dtype) == ((6, 32, 576), torch.bfloat16)
    assert (kv_data["bf16"].shape, kv_data["bf16"].dtype) == ((total_kv, 1, 576), torch.bfloat16)
    fp8, scale = kv_data["fp8"]
    assert (fp8.shape, fp8.dtype) == ((total_kv, 1, 576), torch.float8_e4m3fn)
    assert (scale.shape, scale.dtype) == ((1,), torch.float32)
    packed, scales = kv_data["mxfp4"]
    assert (packed.shape, packed.dtype) == ((total_kv, 1, 288), torch.float4_e2m1fn_x2)
    assert (scales.shape, scales.dtype) == ((total_kv, 18), torch.float8_e8m0fnu)
    assert (qo_indptr.dtype, kv_indptr.dtype) == (torch.int32, torch.int32)
    assert config == {
        "batch_size": 3,
        "num_heads": 32,
        "num_kv_heads": 1,
        "qk_head_dim": 576,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "v_head_dim": 512,
        "q_seq_len": 2,
        "kv_seq_len": 40,
        "sm_scale": 1 / 24,
    }
    assert all(t.isfinite().all() for t in (q, kv_data["bf16"], scale))


def test_dtypes_fall_back_to_uint8_where_torch_lacks_them(monkeypatch):
    native = generate_input(1, 1, 16, 3, device="cpu")[1]["mxfp4"]
    monkeypatch.setattr(reference, "FP4_DTYPE", torch.uint8)
    monkeypatch.setattr(reference, "E8M0_DTYPE", torch.uint8)
    fallback = generate_input(1, 1, 16, 3, device="cpu")[1]["mxfp4"]
    for part, native_part in zip(fallback, native, strict=True):
        assert part.dtype == torch.uint8
        assert torch.equal(part, bits(native_part))


def test_a_padded_scale_buffer_holds_the_same_scales_and_undefined_bytes():
    trimmed = bits(generate_input(3, 1, 100, 3, device="cpu")[1]["mxfp4"][1])
    padded = bits(generate_input(3, 1, 100, 3, device="cpu", scale_padding=True)[1]["mxfp4"][1])
    assert padded.shape == (512, 24)
    assert torch.equal(padded[:300, :18], trimmed)
    assert (padded[300:] == 0xFF).all()
    assert (padded[:, 18:] == 0xFF).all()


@settings(deadline=None, max_examples=50)
@given(batchsize=st.integers(1, 40), kvseqlen=st.integers(1, 300), seed=st.integers(0, 2**62), data=st.data())
def test_ragged_lengths_stay_in_range_and_depend_on_the_case_alone(batchsize, kvseqlen, seed, data):
    kvmin = data.draw(st.integers(0, kvseqlen))
    lengths = kv_lengths(batchsize, kvseqlen, seed, kvmin)
    assert len(lengths) == batchsize
    assert all(kvmin <= length <= kvseqlen for length in lengths)
    torch.manual_seed(99)  # the global generator has no part in it
    assert kv_lengths(batchsize, kvseqlen, seed, kvmin) == lengths


def test_ragged_lengths_spread_over_their_whole_range():
    assert set(kv_lengths(400, 7, 1, kvmin=4)) == {4, 5, 6, 7}


def test_a_ragged_case_has_the_lengths_of_its_spec_and_the_plain_q():
    q, kv_data, _, kv_indptr, config = generate_input(6, 1, 50, 11, kvmin=0, device="cpu")
    assert kv_indptr.diff().tolist() == kv_lengths(6, 50, 11, 0)
    assert len(kv_data["bf16"]) == int(kv_indptr[-1])
    assert config["kv_seq_len"] == 50
    assert torch.equal(q, generate_input(6, 1, 50, 11, device="cpu")[0])


def test_a_case_without_any_keys_can_be_made():
    lengths = [kv_lengths(1, 1, seed, 0)[0] for seed in range(20)]
    _, kv_data, _, kv_indptr, _ = generate_input(1, 1, 1, lengths.index(0), kvmin=0, device="cpu")
    assert kv_indptr.tolist() == [0, 0]
    assert kv_data["bf16"].shape == (0, 1, 576)
    assert kv_data["fp8"][1].item() > 0


def test_seeds_make_different_inputs():
    first, second = (generate_input(1, 1, 16, seed, device="cpu") for seed in (1, 2))
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[1]["bf16"], second[1]["bf16"])


def logits(data) -> torch.Tensor:
    """fp64 [rows, keys] of the only sequence."""
    return data[0].double().view(-1, 576) @ data[1]["bf16"][:, 0].double().T * data[4]["sm_scale"]


def test_large_has_large_logits_and_q_beyond_fp8():
    data = generate_input(1, 1, 1024, 5, dist="large", device="cpu")
    assert logits(data).std() > 10
    peaks = data[0].abs().amax(-1).flatten()
    assert (peaks[::8] > 448).all()
    assert (peaks > 448).sum() == 2


def test_onehot_gives_every_row_one_dominating_key_of_its_own():
    p = logits(generate_input(1, 2, 1024, 5, dist="onehot", device="cpu")).softmax(-1)
    assert (p.amax(-1) > 0.99).all()
    assert len(set(p.argmax(-1).tolist())) == 32


def test_onehot_plants_as_many_queries_as_there_are_keys():
    p = logits(generate_input(1, 1, 5, 5, dist="onehot", device="cpu")).softmax(-1)
    assert len(set(p[:5].argmax(-1).tolist())) == 5


def test_constant_repeats_one_row_within_a_sequence():
    kv = generate_input(2, 1, 33, 5, dist="constant", device="cpu")[1]["bf16"][:, 0]
    assert (kv[:33] == kv[0]).all()
    assert (kv[33:] == kv[33]).all()
    assert not torch.equal(kv[0], kv[33])


def test_outlier_has_eight_large_channels():
    kv = generate_input(1, 1, 500, 5, dist="outlier", device="cpu")[1]["bf16"][:, 0].float()
    assert ((kv.std(0) > 20).sum(), (kv.std(0) < 1.5).sum()) == (8, 568)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dist": "uniform"}, "dist: uniform is unknown; use one of normal, large, onehot, constant, outlier"),
        ({"kvmin": 17}, "kvmin: 17 cannot be used; it has to be an integer from 0 to 16"),
        ({"kvmin": -1}, "kvmin: -1 cannot be used"),
        ({"kvmin": "few"}, "kvmin: few cannot be used"),
        ({"batchsize": 0}, "batchsize: 0 cannot be used; it has to be an integer from 1 to"),
        ({"qseqlen": True}, "qseqlen: True cannot be used"),
        ({"kvseqlen": "long"}, "kvseqlen: long cannot be used"),
        ({"numheads": 0}, "numheads: 0 cannot be used"),
        ({"seed": "mine"}, "seed: mine cannot be used"),
        ({"seed": 2**70}, f"seed: {2**70} cannot be used"),
    ],
)
def test_a_case_that_cannot_be_made_is_named(change, message):
    with pytest.raises(CaseSpecError) as error:
        generate_input(**{"batchsize": 1, "qseqlen": 1, "kvseqlen": 16, "seed": 1, **change}, device="cpu")
    assert message in str(error.value)


def test_reference_py_imports_torch_and_the_standard_library_only():
    tree = ast.parse((ROOT / "reference.py").read_text())
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    packages = {module.split(".")[0] for module in modules}
    assert packages - set(sys.stdlib_module_names) == {"torch", "task"}


def test_reference_py_works_in_a_public_problem_folder_and_obeys_the_device_variable(tmp_path):
    (tmp_path / "reference.py").write_text((ROOT / "reference.py").read_text())
    (tmp_path / "task.py").write_text(
        "from typing import TypeVar\ninput_t = TypeVar('input_t')\noutput_t = TypeVar('output_t')\n"
    )
    program = (
        "import reference as r; d = r.generate_input(1, 1, 64, 3);"
        "print(d[0].device, r.judge(d, r.ref_kernel(d))['strict']['ok'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"KERNELPROOF_DEVICE": "cpu"}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["cpu", "True"], done.stderr


@pytest.mark.slow
def test_the_largest_official_case_fits_in_12_gib():
    program = (
        "import resource, reference as r; r.generate_input(256, 1, 8192, 9826, device='cpu');"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12 * 2**20  # KiB
