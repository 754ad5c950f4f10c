import torch

from task import input_t, output_t


def generate_input(n: int, seed: int) -> input_t:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def check_implementation(data: input_t, output: output_t) -> str:
    from utils import verbose_allclose  # as older folders do: the import runs at the first check

    return "; ".join(verbose_allclose(output, data * data))
