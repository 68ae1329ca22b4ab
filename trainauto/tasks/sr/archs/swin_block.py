"""Attention within shifted windows: the blocks that SwinIR is made of.

Features are (N, H, W, C) here, with H and W multiples of the window.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OUTSIDE = -100.0
"""Added to the attention between pixels that the shift brought together from opposite edges, as published."""

INITIAL_STD = 0.02
"""Of linear layers and position biases. Published as a normal distribution cut off at +-2, which is 100 of these away:
``trunc_normal_`` would draw the same, but cannot run on fake tensors."""


def to_windows(features: Tensor, window_size: int) -> Tensor:
    """Cut (N, H, W, C) into windows of L = window_size ** 2 pixels: (N, rows, columns, L, C)."""
    n, height, width, channels = features.shape
    rows, columns = height // window_size, width // window_size
    cut = features.reshape(n, rows, window_size, columns, window_size, channels)
    return cut.transpose(2, 3).reshape(n, rows, columns, window_size**2, channels)


def from_windows(windows: Tensor, window_size: int) -> Tensor:
    """Put windows (N, rows, columns, L, C) together again: (N, H, W, C)."""
    n, rows, columns, _, channels = windows.shape
    cut = windows.reshape(n, rows, columns, window_size, window_size, channels)
    return cut.transpose(2, 3).reshape(n, rows * window_size, columns * window_size, channels)


def shift_mask(height: int, width: int, window_size: int, shift: int, *, like: Tensor | None = None) -> Tensor:
    """Return what keeps pixels from opposite edges of a shifted image apart.

    After a cyclic shift, the windows of the last row and column hold pixels that were never neighbours. A pixel may
    attend to those of its window that lie in the same of up to nine regions.

    Args:
        height: of the shifted image, a multiple of ``window_size``.
        width: of the shifted image, a multiple of ``window_size``.
        window_size: side of the windows.
        shift: by how many pixels the image was shifted up and left.
        like: tensor whose dtype and device the mask gets.

    Returns:
        (rows, columns, 1, L, L) with L = window_size ** 2, zero or ``OUTSIDE``.
    """
    device = None if like is None else like.device

    def strip(size: int) -> Tensor:
        place = torch.arange(size, device=device)
        return (place >= size - window_size).long() + (place >= size - shift).long()

    region = 3 * strip(height)[:, None] + strip(width)[None, :]
    region = to_windows(region[None, :, :, None], window_size)[0]  # (rows, columns, L, 1)
    apart = (region != region.transpose(2, 3)).unsqueeze(2)
    return apart.to(torch.get_default_dtype() if like is None else like.dtype) * OUTSIDE


def relative_position_index(window_size: int) -> Tensor:
    """Number the offsets between all pairs of pixels of a window: (window_size ** 2, window_size ** 2), integers."""
    place = torch.arange(window_size)
    row, column = place.repeat_interleave(window_size), place.repeat(window_size)
    down = row[:, None] - row[None, :] + window_size - 1
    right = column[:, None] - column[None, :] + window_size - 1
    return down * (2 * window_size - 1) + right


class WindowAttention(nn.Module):
    """Multi-head self-attention among the pixels of a window, with a learned bias for every offset between two."""

    relative_position_index: Tensor

    def __init__(
        self, dim: int, window_size: int, num_heads: int, qkv_bias: bool, attn_drop: float, drop: float
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.empty((2 * window_size - 1) ** 2, num_heads))
        nn.init.normal_(self.relative_position_bias_table, std=INITIAL_STD)
        self.register_buffer("relative_position_index", relative_position_index(window_size))
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(drop)

    def forward(self, windows: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within (N, rows, columns, L, C); ``mask`` is (rows, columns, 1, L, L) or nothing."""
        *where, channels = windows.shape
        qkv = self.qkv(windows).reshape(*where, 3, self.num_heads, channels // self.num_heads)
        query, key, value = qkv.permute(4, 0, 1, 2, 5, 3, 6)  # each (N, rows, columns, heads, L, C / heads)
        bias = self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
        # Bias and mask are summed first: that is small, whereas there is one attention for every sample.
        added = bias if mask is None else bias + mask
        attention = (query * self.scale) @ key.transpose(-2, -1) + added
        attention = self.attn_drop(attention.softmax(-1))
        mixed = (attention @ value).transpose(-3, -2).reshape(*where, channels)
        return self.proj_drop(self.proj(mixed))


class Mlp(nn.Module):
    """Two linear layers with GELU between them."""

    def __init__(self, dim: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, features: Tensor) -> Tensor:
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(features)))))


class DropPath(nn.Module):
    """Stochastic depth: in training, leave a residual branch out for some samples and enlarge it for the others."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return branch
        kept = torch.rand(branch.shape[0], 1, 1, 1, device=branch.device) >= self.rate
        return branch * (kept.to(branch.dtype) / (1.0 - self.rate))


class SwinBlock(nn.Module):
    """Window attention and a perceptron, each behind a norm and beside a shortcut; every second block is shifted.

    ``attn_mask`` is in the state dict because published checkpoints hold it, for the side of their training crops. It
    is never read: the network computes the mask once per forward pass for the size at hand and hands it to its blocks.
    """

    attn_mask: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window_size: int,
        shift: int,
        img_size: int,
        mlp_ratio: float,
        qkv_bias: bool,
        drop: float,
        attn_drop: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.window_size = window_size
        self.shift = shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, window_size, num_heads, qkv_bias, attn_drop, drop)
        self.drop_path = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), drop)
        if shift:
            mask = shift_mask(img_size, img_size, window_size, shift)
            self.register_buffer("attn_mask", mask.reshape(-1, window_size**2, window_size**2))

    def forward(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Map (N, H, W, C) to the same shape; ``mask`` is that of :func:`shift_mask` for H and W."""
        features = features + self.drop_path(self._attend(self.norm1(features), mask))
        return features + self.drop_path(self.mlp(self.norm2(features)))

    def _attend(self, features: Tensor, mask: Tensor | None) -> Tensor:
        if not self.shift:
            return from_windows(self.attn(to_windows(features, self.window_size), None), self.window_size)
        shifted = features.roll((-self.shift, -self.shift), (1, 2))
        shifted = from_windows(self.attn(to_windows(shifted, self.window_size), mask), self.window_size)
        return shifted.roll((self.shift, self.shift), (1, 2))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The mask follows from sizes alone. Files trained on crops of another side, or without it, lose nothing.
        if self.shift:
            state_dict[prefix + "attn_mask"] = self.attn_mask
        super()._load_from_state_dict(state_dict, prefix, *args)


class BlockGroup(nn.Module):
    """Swin blocks in a row, every second one shifted by half a window."""

    def __init__(self, blocks: Sequence[SwinBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, features: Tensor, mask: Tensor | None) -> Tensor:
        for block in self.blocks:
            features = block(features, mask)
        return features


class RSTB(nn.Module):
    """Residual Swin Transformer block: a group of Swin blocks and a convolution, with a shortcut around both."""

    def __init__(self, group: BlockGroup, conv: nn.Module) -> None:
        super().__init__()
        self.residual_group = group
        self.conv = conv

    def forward(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Map (N, H, W, C) to the same shape."""
        deep = self.residual_group(features, mask).permute(0, 3, 1, 2)
        return features + self.conv(deep).permute(0, 2, 3, 1)


class NormOnly(nn.Module):
    """Layer norm under the name that published checkpoints know it by."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, features: Tensor) -> Tensor:
        return self.norm(features)


def initialise_linear(module: nn.Module) -> None:
    """Initialise linear layers as published; convolutions and norms keep PyTorch's initialisation."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=INITIAL_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
