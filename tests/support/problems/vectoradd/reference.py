import torch

from task import input_t, output_t
from utils import get_device, make_match_reference


def generate_input(size: int, seed: int) -> input_t:
    device = get_device()
    gen = torch.Generator(device=device)
    gen.manual_seed(seed)
    a = torch.randn(size, size, device=device, dtype=torch.float16, generator=gen)
    b = torch.randn(size, size, device=device, dtype=torch.float16, generator=gen)
    return a, b


def ref_kernel(data: input_t) -> output_t:
    a, b = data
    return a + b


check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-3)
