import torch

input_t = tuple[torch.Tensor, dict[str, str]]  # fp32 [size], {"act": how the submission is to behave}
output_t = torch.Tensor  # fp32 [size]
