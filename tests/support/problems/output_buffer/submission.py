import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, output = data
    torch.exp(x, out=output)
    return output
