import torch

input_t = torch.Tensor  # fp32 [n]
output_t = torch.Tensor  # fp32 [] : the sum
