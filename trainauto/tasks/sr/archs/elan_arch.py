"""ELAN: convolutions of shifted features, and attention in windows of three sizes that several layers share."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_numbers, require_positive_integers
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.swin_block import from_windows, to_windows

DIRECTIONS = ((1, 2), (1, 0), (2, 1), (0, 1), (1, 1))
"""Row and column of the one entry of each 3x3 kernel that moves a fifth of the channels; the last stays."""
SIZES = 3
"""Window sizes; each has a third of the channels."""


def moving_kernels(channels: int) -> Tensor:
    """Return depthwise kernels (C, 1, 3, 3) that move four fifths of the channels by a pixel each and keep the rest."""
    fifth = channels // len(DIRECTIONS)
    kernels = torch.zeros(channels, 1, 3, 3)
    for index, (row, column) in enumerate(DIRECTIONS):
        end = channels if index == len(DIRECTIONS) - 1 else (index + 1) * fifth
        kernels[index * fifth : end, 0, row, column] = 1.0
    return kernels


class ShiftedConv(nn.Module):
    """Fifths of the channels moved by a pixel each, or kept, and a 1x1 convolution of all."""

    weight: Tensor

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        # Published as a weight that is never trained; a buffer is neither counted nor averaged as one.
        self.register_buffer("weight", moving_kernels(in_channels))
        self.conv1x1 = nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        weight = self.weight.to(features.dtype)
        moved = torch.nn.functional.conv2d(features, weight, padding=1, groups=len(weight))
        return self.conv1x1(moved)


def _shifted(in_channels: int, out_channels: int) -> nn.ModuleDict:
    return nn.ModuleDict({"shift_conv": ShiftedConv(in_channels, out_channels)})


class ShiftMlp(nn.Module):
    """Two convolutions of shifted features with ReLU between them."""

    def __init__(self, channels: int, expansion: int) -> None:
        super().__init__()
        self.conv0 = _shifted(channels, expansion * channels)
        self.conv1 = _shifted(expansion * channels, channels)

    def forward(self, features: Tensor) -> Tensor:
        return self.conv1["shift_conv"](self.conv0["shift_conv"](features).relu_())


class GroupAttention(nn.Module):
    """Attention of a third of the channels in windows of each size, computed or handed on from the layer before."""

    def __init__(self, channels: int, is_shifted: bool, window_sizes: Sequence[int], computes: bool) -> None:
        super().__init__()
        self.is_shifted, self.window_sizes, self.computes = is_shifted, window_sizes, computes
        width = channels * (2 if computes else 1)
        self.project_inp = nn.Sequential(nn.Conv2d(channels, width, 1), nn.BatchNorm2d(width))
        self.project_out = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Tensor, attentions: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Map (N, C, H, W) to the same shape, and to the attentions (N, rows, columns, L, L) of each window size."""
        used, mixed = [], []
        parts = self.project_inp(features).permute(0, 2, 3, 1).chunk(SIZES, dim=-1)
        for index, (part, size) in enumerate(zip(parts, self.window_sizes, strict=True)):
            shift = (size + 1) // 2 if self.is_shifted else 0
            back = size // 2 if self.is_shifted else 0
            windows = to_windows(part.roll((-shift, -shift), (1, 2)) if shift else part, size)
            if self.computes:
                query, value = windows.chunk(2, dim=-1)
                attention = (query @ query.transpose(-2, -1)).softmax(-1)
            else:
                attention, value = attentions[index], windows
            used.append(attention)
            joined = from_windows(attention @ value, size)
            mixed.append(joined.roll((back, back), (1, 2)) if back else joined)
        return self.project_out(torch.cat(mixed, dim=-1).permute(0, 3, 1, 2)), used


class SharedBlock(nn.Module):
    """Layers of shifted convolutions and attention, each beside a shortcut; the first computes it for all."""

    def __init__(
        self, channels: int, expansion: int, is_shifted: bool, window_sizes: Sequence[int], shared: int
    ) -> None:
        super().__init__()
        layers = range(shared + 1)
        self.modules_lfe = nn.ModuleDict({f"lfe_{index}": ShiftMlp(channels, expansion) for index in layers})
        self.modules_gmsa = nn.ModuleDict(
            {f"gmsa_{index}": GroupAttention(channels, is_shifted, window_sizes, index == 0) for index in layers}
        )

    def forward(self, features: Tensor) -> Tensor:
        attentions: list[Tensor] = []
        for mlp, attention in zip(self.modules_lfe.values(), self.modules_gmsa.values(), strict=True):
            features = mlp(features) + features
            mixed, attentions = attention(features, attentions)
            features = mixed + features
        return features


@ARCHS.register("elan")
class ELAN(nn.Module):
    """Efficient long-range attention network; defaults are those of the large size. It normalises over batches.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        window_sizes: sides of the attention windows in pixels, three.
        m_elan: layers, ``n_share`` + 1 of them a block.
        c_elan: channels of the blocks, a multiple of 3.
        n_share: further layers of a block that use the attention of its first.
        r_expand: hidden channels of the shifted convolutions, as a multiple of ``c_elan``.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        X. Zhang et al., "Efficient Long-Range Attention Network for Image Super-resolution", ECCV 2022,
        https://arxiv.org/abs/2203.06697, and its repository, https://github.com/xindongzhang/ELAN.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of all windows; others are padded."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        window_sizes: Sequence[int] = (4, 8, 16),
        m_elan: int = 36,
        c_elan: int = 180,
        n_share: int = 0,
        r_expand: int = 2,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, m_elan=m_elan)
        require_positive_integers(c_elan=c_elan, r_expand=r_expand)
        require_numbers("window_sizes", window_sizes)
        require_positive_integers(**{f"window_sizes[{index}]": size for index, size in enumerate(window_sizes)})
        if len(window_sizes) != SIZES or c_elan % SIZES:
            raise ValueError(f"window_sizes must be {SIZES}, and c_elan a multiple of 3; got {window_sizes}, {c_elan}")
        if isinstance(n_share, bool) or not isinstance(n_share, int) or not 0 <= n_share < m_elan:
            raise ValueError(f"n_share must be a whole number from 0 to below m_elan ({m_elan}), got {n_share!r}")
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.multiple = math.lcm(*window_sizes)
        self.size_requirements = SizeRequirements(minimum=self.multiple, multiple=self.multiple)
        self.head = nn.Sequential(nn.Conv2d(num_in_ch, c_elan, 3, padding=1))
        blocks = (
            SharedBlock(c_elan, r_expand, index % 2 == 1, tuple(window_sizes), n_share)
            for index in range(m_elan // (1 + n_share))
        )
        self.body = nn.Sequential(*blocks)
        self.tail = nn.Sequential(nn.Conv2d(c_elan, num_out_ch * scale**2, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        shallow = self.head(reflect_to_multiple(image, self.multiple))
        return self.tail(self.body(shallow) + shallow)[..., : height * self.scale, : width * self.scale]


register_preset(
    ELAN, "elan_light", about="The light ELAN, whose layers share attention in pairs", m_elan=24, c_elan=60, n_share=1
)
