"""The task on a GPU: the published draws, the CPU's formats bit for bit, the CPU's verdicts."""

import pytest
import torch

from reference import FORMATS, fp8_dtype, generate_input, judge, judge_strict, quantize_kv, ref_kernel
from scripts.honest_kernels import HonestKernel

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def on_gpu(data):
    """The same input on the GPU."""
    q, kv_data, qo_indptr, kv_indptr, config = data
    kv_data = {
        "bf16": kv_data["bf16"].cuda(),
        "fp8": tuple(part.cuda() for part in kv_data["fp8"]),
        "mxfp4": tuple(part.cuda() for part in kv_data["mxfp4"]),
    }
    return q.cuda(), kv_data, qo_indptr.cuda(), kv_indptr.cuda(), config


def test_a_plain_case_draws_as_the_published_generator_does():
    generator = torch.Generator(device="cuda").manual_seed(4217)
    options = {"dtype": torch.bfloat16, "device": "cuda", "generator": generator}
    q = torch.randn((4, 16, 576), **options)
    kv = torch.randn((4 * 1024, 1, 576), **options)
    data = generate_input(4, 1, 1024, 4217, device="cuda")
    assert torch.equal(data[0], q)
    assert torch.equal(data[1]["bf16"], kv)


def test_the_formats_are_those_of_the_cpu_bit_for_bit():
    kv = generate_input(2, 1, 3000, 5, device="cpu")[1]["bf16"]
    cpu, gpu = quantize_kv(kv), quantize_kv(kv.cuda())
    for name in ("fp8", "mxfp4") if fp8_dtype(torch.device("cuda")) == torch.float8_e4m3fn else ("mxfp4",):
        for cpu_part, gpu_part in zip(cpu[name], gpu[name], strict=True):
            assert torch.equal(cpu_part.view(torch.uint8), gpu_part.cpu().view(torch.uint8))


@pytest.mark.parametrize("kv_format", FORMATS)
def test_verdicts_are_those_of_the_cpu(kv_format):
    data = generate_input(5, 2, 700, 6, kvmin=0, dist="large", device="cpu")
    output = HonestKernel(kv_format, p_dtype=torch.bfloat16)(data)
    for result in (output, output * 1.1, output.roll(1, 0)):
        cpu, gpu = judge_strict(data, result), judge_strict(on_gpu(data), result.cuda())
        assert (gpu["ok"], gpu["format"], gpu["first_offending"]) == (cpu["ok"], cpu["format"], cpu["first_offending"])
        assert gpu["rel_l2_worst"] == pytest.approx(cpu["rel_l2_worst"], rel=1e-6)


def test_the_reference_passes_its_own_verdicts():
    data = generate_input(32, 1, 1024, 5412, device="cuda")
    verdicts = judge(data, ref_kernel(data))
    assert verdicts["official"]["ok"]
    assert verdicts["strict"]["ok"], verdicts["strict"]["message"]


def test_an_output_on_the_cpu_is_refused():
    data = generate_input(1, 1, 64, 1, device="cuda")
    assert "output is on cpu; return it on cuda:0" in judge(data, ref_kernel(data).cpu())["official"]["message"]
