import torch

input_t = tuple[torch.Tensor, torch.Tensor]  # fp32 [n], and the fp32 [n] buffer that the result is written to
output_t = torch.Tensor  # that buffer
