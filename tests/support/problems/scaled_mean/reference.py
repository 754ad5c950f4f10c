import torch

from task import input_t, output_t
from utils import match_reference


def generate_input(n: int, negate: str, seed: int) -> input_t:
    data = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    return data, -2.0 if negate == "True" else 2.0


def ref_kernel(data: input_t) -> output_t:
    x, factor = data
    return x * factor


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    good, message = match_reference(data, output, ref_kernel)
    return good, message or "exact"
