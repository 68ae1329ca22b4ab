"""Enlargement that learns where to look."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 4
"""Channels are divided into so many groups, each of which looks elsewhere; that of published weights."""


class DySample(nn.Module):
    """Doubles the sides of features: each new pixel is read, bilinearly, where two 1x1 convolutions say.

    Args:
        channels: of the input and the output; a multiple of :data:`GROUPS`.

    References:
        W. Liu et al., "Learning to Upsample by Learning to Sample", ICCV 2023, https://arxiv.org/abs/2308.15085.
    """

    init_pos: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.offset = nn.Conv2d(channels, 2 * GROUPS * 4, 1)
        self.scope = nn.Conv2d(channels, 2 * GROUPS * 4, 1, bias=False)
        nn.init.normal_(self.offset.weight, std=0.02)
        nn.init.zeros_(self.scope.weight)
        quarter = torch.tensor([-0.25, 0.25])
        # Of (x or y, group, row, column): the four new pixels begin at the places that plain enlargement gives them.
        x, y = quarter.expand(GROUPS, 2, 2), quarter.view(2, 1).expand(GROUPS, 2, 2)
        self.register_buffer("init_pos", torch.stack([x, y]).reshape(1, -1, 1, 1))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C, 2H, 2W)."""
        samples, channels, height, width = features.shape
        moved = self.offset(features) * self.scope(features).sigmoid() * 0.5
        # In float32 also under autocast: eight bits of bfloat16 could not tell the pixels of a wide image apart.
        moved = F.pixel_shuffle(moved.float() + self.init_pos.float(), 2)
        moved = moved.view(samples, 2, GROUPS, 2 * height, 2 * width)
        x = (_centres(moved, width) + moved[:, 0]) * (2 / width) - 1
        y = (_centres(moved, height)[:, None] + moved[:, 1]) * (2 / height) - 1
        places = torch.stack([x, y], dim=-1).flatten(0, 1)
        grouped = features.float().reshape(samples * GROUPS, -1, height, width)
        read = F.grid_sample(grouped, places, mode="bilinear", padding_mode="border", align_corners=False)
        return read.view(samples, channels, 2 * height, 2 * width).to(features.dtype)


def _centres(like: Tensor, count: int) -> Tensor:
    """Return the centre of the old pixel in which each of ``2 * count`` new ones lies."""
    return torch.arange(count, dtype=like.dtype, device=like.device).repeat_interleave(2) + 0.5
