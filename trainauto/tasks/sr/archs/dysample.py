"""Enlargement that learns where to look."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 4
"""Channels are divided into so many groups, each of which looks elsewhere; that of published weights."""


class DySample(nn.Module):
    """Enlarges features: each new pixel is read, bilinearly, where two 1x1 convolutions say.

    Args:
        channels: of the input; a multiple of :data:`GROUPS`.
        out_channels: of a 1x1 convolution at the end; ``None`` for an output of as many channels without one.
        scale: enlargement factor.

    References:
        W. Liu et al., "Learning to Upsample by Learning to Sample", ICCV 2023, https://arxiv.org/abs/2308.15085.
    """

    init_pos: Tensor

    def __init__(self, channels: int, out_channels: int | None = None, scale: int = 2) -> None:
        super().__init__()
        self.scale = scale
        if out_channels is not None:
            self.end_conv = nn.Conv2d(channels, out_channels, 1)
        self.offset = nn.Conv2d(channels, 2 * GROUPS * scale**2, 1)
        self.scope = nn.Conv2d(channels, 2 * GROUPS * scale**2, 1, bias=False)
        nn.init.normal_(self.offset.weight, std=0.02)
        nn.init.zeros_(self.scope.weight)
        places = (torch.arange(scale) - (scale - 1) / 2) / scale
        # Of (x or y, group, row, column): new pixels begin at the places that plain enlargement gives them.
        shape = (GROUPS, scale, scale)
        x, y = places.expand(shape), places.view(scale, 1).expand(shape)
        self.register_buffer("init_pos", torch.stack([x, y]).reshape(1, -1, 1, 1))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C_out, H * scale, W * scale)."""
        samples, channels, height, width = features.shape
        tall, wide = self.scale * height, self.scale * width
        moved = self.offset(features) * self.scope(features).sigmoid() * 0.5
        # In float32 also under autocast: eight bits of bfloat16 could not tell the pixels of a wide image apart.
        moved = F.pixel_shuffle(moved.float() + self.init_pos.float(), self.scale)
        moved = moved.view(samples, 2, GROUPS, tall, wide)
        x = (self._centres(moved, width) + moved[:, 0]) * (2 / width) - 1
        y = (self._centres(moved, height)[:, None] + moved[:, 1]) * (2 / height) - 1
        places = torch.stack([x, y], dim=-1).flatten(0, 1)
        grouped = features.float().reshape(samples * GROUPS, -1, height, width)
        read = F.grid_sample(grouped, places, mode="bilinear", padding_mode="border", align_corners=False)
        enlarged = read.view(samples, channels, tall, wide).to(features.dtype)
        return self.end_conv(enlarged) if hasattr(self, "end_conv") else enlarged

    def _centres(self, like: Tensor, count: int) -> Tensor:
        """Return the centre of the old pixel in which each of ``scale * count`` new ones lies."""
        return torch.arange(count, dtype=like.dtype, device=like.device).repeat_interleave(self.scale) + 0.5
