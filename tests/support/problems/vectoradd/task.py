from typing import TypedDict

import torch

input_t = tuple[torch.Tensor, torch.Tensor]  # two fp16 [size, size]
output_t = torch.Tensor  # fp16 [size, size]


class TestSpec(TypedDict):
    size: int
    seed: int
