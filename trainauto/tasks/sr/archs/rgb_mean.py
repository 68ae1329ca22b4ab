"""The mean that networks subtract from RGB images."""

import torch
from torch import Tensor, nn

RGB_MEAN = (0.4488, 0.4371, 0.4040)
"""Mean of DIV2K in [0, 1]."""
RGB_MEAN_DF2K = (0.4690, 0.4490, 0.4036)
"""Mean of DF2K in [0, 1]."""


class MeanShift(nn.Module):
    """Adds a multiple of a mean; written as a 1x1 convolution because files hold it as one. It is not trained."""

    weight: Tensor
    bias: Tensor

    def __init__(self, mean: tuple[float, ...], factor: float) -> None:
        super().__init__()
        self.register_buffer("weight", torch.eye(len(mean))[:, :, None, None])
        self.register_buffer("bias", factor * torch.tensor(mean))

    def forward(self, image: Tensor) -> Tensor:
        # What the convolution comes to. Autocast would round images and mean before they are added.
        return image + self.bias.view(-1, 1, 1)
