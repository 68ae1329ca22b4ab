"""CascadedGaze: a U-net whose encoder joins each pixel with ever larger surroundings; made for noise and blur."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_channels_that_add,
    require_choice,
    require_counts,
    require_positive_integers,
)
from trainauto.tasks.sr.archs.channel_norms import ChannelLayerNorm
from trainauto.tasks.sr.archs.registry import ARCHS

EXPANSION = 2
"""Channels within a block, as a multiple of its channels."""
CONVOLUTIONS = {2: ((3, 2), (3, 3)), 3: ((3, 2), (3, 3), (5, 4))}
"""Kernels and strides of the cascade, by the number of its convolutions."""
LEAST = {2: 7, 3: 31}
"""Sides of the smallest features that each cascade can shrink."""


class ShrinkingConv(nn.Module):
    """A depthwise convolution whose steps are about as wide as its kernel, and one of 1x1."""

    def __init__(self, channels: int, side: int, stride: int) -> None:
        super().__init__()
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.depthwise = nn.Conv2d(channels, channels, side, stride=stride, groups=channels, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C, (H - side) // stride + 1, (W - side) // stride + 1)."""
        return self.pointwise(self.depthwise(features))


class Cascade(nn.Module):
    """Shrinking convolutions one after the other, each enlarged to the size of the input again."""

    def __init__(self, channels: int, convolutions: int) -> None:
        super().__init__()
        convs = (ShrinkingConv(channels, side, stride) for side, stride in CONVOLUTIONS[convolutions])
        self.depthwise_separable_convs = nn.ModuleList(convs)

    def forward(self, features: Tensor) -> list[Tensor]:
        """Map (N, C, H, W) to a list of that shape, one entry for each convolution."""
        made, shrunk = [], features
        for conv in self.depthwise_separable_convs:
            shrunk = F.gelu(conv(shrunk))
            made.append(F.interpolate(shrunk, size=features.shape[-2:], mode="nearest"))
        return made


class GatedPerceptron(nn.Module):
    """The second half of every block: gated 1x1 convolutions beside a scaled shortcut.

    Subclasses are the first half; the layers of both stand side by side in published files.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = ChannelLayerNorm(channels), ChannelLayerNorm(channels)
        self.conv4 = nn.Conv2d(channels, EXPANSION * channels, 1)
        self.conv5 = nn.Conv2d(EXPANSION * channels // 2, channels, 1)
        self.beta = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.gamma = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        features = features + self.mix(self.norm1(features)) * self.beta
        gate, gated = self.conv4(self.norm2(features)).chunk(2, dim=1)
        return features + self.conv5(gate * gated) * self.gamma

    def mix(self, normed: Tensor) -> Tensor:
        """Mix pixels of (N, C, H, W)."""
        raise NotImplementedError


class CascadedGazeBlock(GatedPerceptron):
    """Features beside what a cascade of shrinking convolutions makes of their surroundings."""

    def __init__(self, channels: int, convolutions: int) -> None:
        super().__init__(channels)
        wide = EXPANSION * channels
        self.conv1 = nn.Conv2d(channels, wide, 1)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)
        self.GCE = Cascade(channels, convolutions)
        joined = wide + convolutions * channels
        self.sca = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(joined, joined, 1))
        self.project_out = nn.Conv2d(joined, channels, 1)

    def mix(self, normed: Tensor) -> Tensor:
        wide = F.gelu(self.conv2(self.conv1(normed)))
        first, second = wide.chunk(2, dim=1)
        joined = torch.cat((wide, *self.GCE(first + second)), dim=1)
        return self.project_out(self.sca(joined) * joined)


class NAFBlock(GatedPerceptron):
    """Gated depthwise convolutions, weighed by channel; NAFNet's block."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        wide = EXPANSION * channels
        self.conv1 = nn.Conv2d(channels, wide, 1)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)
        self.conv3 = nn.Conv2d(wide // 2, channels, 1)
        self.sca = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide // 2, wide // 2, 1))

    def mix(self, normed: Tensor) -> Tensor:
        gate, gated = self.conv2(self.conv1(normed)).chunk(2, dim=1)
        mixed = gate * gated
        return self.conv3(mixed * self.sca(mixed))


@ARCHS.register("cascadedgaze")
class CascadedGaze(nn.Module):
    """Cascaded gaze network: a U-net of NAFNet's blocks with global context, for noise and blur at scale 1.

    Args:
        num_in_ch: channels of the input: 1, or as many as the output has.
        num_out_ch: channels of the output.
        scale: 1, since nothing is enlarged.
        width: channels at the resolution of the input; each level has twice those of the level above.
        middle_blk_num: blocks at the lowest resolution.
        enc_blk_nums: blocks of the encoder by level.
        dec_blk_nums: blocks of the decoder by level, from the lowest up; as many entries.
        GCE_CONVS_nums: convolutions of the cascades in the encoder by level: 2, or 3 with larger surroundings.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        A. Ghasemabadi et al., "CascadedGaze: Efficiency in Global Context Extraction for Image Restoration", TMLR 2024,
        https://arxiv.org/abs/2401.15235, and its repository, https://github.com/Ascend-Research/CascadedGaze, as in
        https://github.com/the-database/traiNNer-redux.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Always 1."""
    size_requirements: SizeRequirements
    """Sides that can be halved once a level and shrunk by all cascades; others are padded with zeros."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 1,
        width: int = 60,
        middle_blk_num: int = 10,
        enc_blk_nums: Sequence[int] = (2, 2, 4, 6),
        dec_blk_nums: Sequence[int] = (2, 2, 2, 2),
        GCE_CONVS_nums: Sequence[int] = (3, 3, 2, 2),
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, width=width)
        require_positive_integers(middle_blk_num=middle_blk_num)
        require_choice("scale", scale, (1,))
        require_channels_that_add(num_in_ch, num_out_ch)
        _check_levels(enc_blk_nums, dec_blk_nums, GCE_CONVS_nums)
        self.num_in_ch = num_in_ch
        self.scale = scale
        levels = range(len(enc_blk_nums))
        self.multiple = 2 ** len(levels)
        least = max(LEAST[count] * 2**level for level, count in enumerate(GCE_CONVS_nums))
        self.least = -(-least // self.multiple) * self.multiple
        self.size_requirements = SizeRequirements(minimum=self.least, multiple=self.multiple)
        self.intro = nn.Conv2d(num_in_ch, width, 3, padding=1)
        self.ending = nn.Conv2d(width, num_out_ch, 3, padding=1)
        self.encoders, self.downs = nn.ModuleList(), nn.ModuleList()
        self.ups, self.decoders = nn.ModuleList(), nn.ModuleList()
        for level in levels:
            channels, count = width * 2**level, enc_blk_nums[level]
            blocks = (CascadedGazeBlock(channels, GCE_CONVS_nums[level]) for _ in range(count))
            self.encoders.append(nn.Sequential(*blocks))
            self.downs.append(nn.Conv2d(channels, 2 * channels, 2, stride=2))
        lowest = width * self.multiple
        self.middle_blks = nn.Sequential(*(NAFBlock(lowest) for _ in range(middle_blk_num)))
        for level, count in zip(reversed(levels), dec_blk_nums, strict=True):
            channels = width * 2**level
            self.ups.append(nn.Sequential(nn.Conv2d(2 * channels, 4 * channels, 1, bias=False), nn.PixelShuffle(2)))
            self.decoders.append(nn.Sequential(*(NAFBlock(channels) for _ in range(count))))

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again: the blocks of all levels."""
        return tuple(module for module in self.modules() if isinstance(module, GatedPerceptron))

    def forward(self, image: Tensor) -> Tensor:
        """Restore (N, num_in_ch, H, W) to (N, num_out_ch, H, W)."""
        height, width = image.shape[-2:]
        padded = F.pad(image, (0, self._missing(width), 0, self._missing(height)))
        features, seen = self.intro(padded), []
        for encoder, down in zip(self.encoders, self.downs, strict=True):
            features = encoder(features)
            seen.append(features)
            features = down(features)
        features = self.middle_blks(features)
        for decoder, up in zip(self.decoders, self.ups, strict=True):
            features = decoder(up(features) + seen.pop())
        return (self.ending(features) + padded)[..., :height, :width]

    def _missing(self, side: int) -> int:
        """Return the pixels by which a side is padded; ``sym_max`` keeps ONNX files free of the size traced."""
        whole = (side + self.multiple - 1) // self.multiple * self.multiple
        longer: int = torch.sym_max(self.least, whole)
        return longer - side


def _check_levels(encoders: Sequence[int], decoders: Sequence[int], convolutions: Sequence[int]) -> None:
    lists = {"enc_blk_nums": encoders, "dec_blk_nums": decoders, "GCE_CONVS_nums": convolutions}
    for name, values in lists.items():
        require_counts(name, values)
    if len({len(values) for values in lists.values()}) > 1:
        given = ", ".join(str(len(values)) for values in lists.values())
        raise ValueError(f"{', '.join(lists)} must have one entry for each level, got {given}")
    for count in convolutions:
        require_choice("each entry of GCE_CONVS_nums", count, tuple(CONVOLUTIONS))
