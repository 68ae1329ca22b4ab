"""What networks of gated convolutions, as MambaOut's, share."""

import torch
from torch import Tensor, nn

from trainauto.tasks.sr.archs.argument_checks import require_above_zero

BAND = 11
"""Length of the horizontal and vertical kernels."""
BRANCHES = 8
"""A branch takes so many of the channels: one in eight."""


def check_expansion(name: str, expansion: float, dim: int) -> int:
    """Return the channels of a gate, as many times the channels that are mixed.

    Raises:
        ValueError: they would be fewer than ``dim``, the channels that are mixed.
    """
    require_above_zero(**{name: expansion})
    hidden = int(expansion * dim)
    if hidden < dim:
        raise ValueError(
            f"{name} must be at least 1, because {dim} of the expanded channels are mixed; got {expansion!r}"
        )
    return hidden


class InceptionConv(nn.Module):
    """Depthwise convolutions of a square, a row and a column, each on an eighth of the channels; the rest is kept.

    Args:
        channels: of the features, at least eight.

    References:
        W. Yu et al., "InceptionNeXt", CVPR 2024, https://arxiv.org/abs/2303.16900.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        branch = channels // BRANCHES
        self.split = (channels - 3 * branch, branch, branch, branch)
        self.dwconv_hw = nn.Conv2d(branch, branch, 3, padding=1, groups=branch)
        self.dwconv_w = nn.Conv2d(branch, branch, (1, BAND), padding=(0, BAND // 2), groups=branch)
        self.dwconv_h = nn.Conv2d(branch, branch, (BAND, 1), padding=(BAND // 2, 0), groups=branch)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        kept, square, row, column = features.split(self.split, dim=1)
        return torch.cat((kept, self.dwconv_hw(square), self.dwconv_w(row), self.dwconv_h(column)), dim=1)
