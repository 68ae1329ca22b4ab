"""Norms over the channels of a pixel, for features of (N, C, H, W)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPSILON = 1e-6


class ChannelLayerNorm(nn.Module):
    """Layer norm over the channels of each pixel: (x - mean) / sqrt(variance + epsilon) * weight + bias."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        last = features.permute(0, 2, 3, 1)
        return F.layer_norm(last, self.weight.shape, self.weight, self.bias, EPSILON).permute(0, 3, 1, 2)


class ChannelRMSNorm(nn.Module):
    """Division by the root mean square of each pixel's channels: x / (rms(x) + epsilon) * scale + offset.

    Args:
        channels: of the features.
        trailing: further sides of 1 that the weights have in published files: ``(1, 1)`` or none.

    References:
        B. Zhang and R. Sennrich, "Root Mean Square Layer Normalization", https://arxiv.org/abs/1910.07467; the offset
        and the place of epsilon are those of https://github.com/umzi2/MoSR.
    """

    def __init__(self, channels: int, trailing: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, *trailing))
        self.offset = nn.Parameter(torch.zeros(channels, *trailing))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        root = torch.linalg.vector_norm(features, dim=1, keepdim=True) * features.shape[1] ** -0.5
        return features / (root + EPSILON) * self.scale.view(-1, 1, 1) + self.offset.view(-1, 1, 1)
