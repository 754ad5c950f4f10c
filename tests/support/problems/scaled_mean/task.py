import torch

input_t = tuple[torch.Tensor, float]  # fp32 [n], and the factor
output_t = torch.Tensor  # fp32 [n]
