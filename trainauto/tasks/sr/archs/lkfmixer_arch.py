"""LKFMixer: convolutions of large kernels, a row and a column each, on a share of the channels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_expansion, require_odd, require_positive_integers
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset

POOLED = 8
"""Sides of the squares whose maxima modulate features."""


def _depthwise(channels: int) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, 3, padding=1, groups=channels)


class PartialLargeKernel(nn.Module):
    """Depthwise convolutions along rows and columns of the first channels, then a 1x1 convolution of all."""

    def __init__(self, channels: int, large_kernel: int, part: int) -> None:
        super().__init__()
        self.split = (part, channels - part)
        middle = large_kernel // 2
        self.DWConv_Kx1 = nn.Conv2d(part, part, (large_kernel, 1), padding=(middle, 0), groups=part)
        self.DWConv_1xK = nn.Conv2d(part, part, (1, large_kernel), padding=(0, middle), groups=part)
        self.conv1 = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        mixed, kept = features.split(self.split, dim=1)
        mixed = self.DWConv_Kx1(self.DWConv_1xK(mixed))
        return F.gelu(self.conv1(torch.cat((mixed, kept), dim=1)))


class FusedKernels(nn.Module):
    """The sum of a small and a large convolution, fused by one of 1x1."""

    def __init__(self, channels: int, large_kernel: int, part: int) -> None:
        super().__init__()
        self.PLKB = PartialLargeKernel(channels, large_kernel, part)
        self.DWConv3 = _depthwise(channels)
        self.conv1 = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        return F.gelu(self.conv1(self.DWConv3(features) + self.PLKB(features)))


class Distillation(nn.Module):
    """Three convolutions in a row; half as many channels are drawn off before each and behind the last, and fused."""

    def __init__(self, channels: int, large_kernel: int, part: int) -> None:
        super().__init__()
        half = channels // 2
        self.c1_d, self.c2_d, self.c3_d = (nn.Conv2d(channels, half, 1) for _ in range(3))
        self.c1_r, self.c2_r, self.c3_r = (FusedKernels(channels, large_kernel, part) for _ in range(3))
        self.c4 = nn.Conv2d(channels, half, 1)
        self.c5 = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        drawn = []
        for draw, refine in ((self.c1_d, self.c1_r), (self.c2_d, self.c2_r), (self.c3_d, self.c3_r)):
            drawn.append(F.gelu(draw(features)))
            features = refine(features)
        return self.c5(torch.cat((*drawn, F.gelu(self.c4(features))), dim=1))


class SpatialModulation(nn.Module):
    """A large convolution beside the maxima of squares, which are weighed by the means of their channels."""

    def __init__(self, channels: int, large_kernel: int, part: int) -> None:
        super().__init__()
        self.PLKB = PartialLargeKernel(channels, large_kernel, part)
        self.DWConv_3 = _depthwise(channels)
        self.conv1_1 = nn.Conv2d(channels, channels, 1)
        self.conv1_2 = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of 8, to the same shape."""
        pooled = F.gelu(self.conv1_1(self.DWConv_3(F.max_pool2d(features, POOLED))))
        spread = F.interpolate(pooled, scale_factor=POOLED, mode="bilinear")
        weighed = F.adaptive_avg_pool2d(features, 1).sigmoid() * spread
        return F.gelu(self.conv1_2(self.PLKB(features) + weighed))


class Selection(nn.Module):
    """A large and a small convolution, mixed by a weight of each pixel and channel."""

    def __init__(self, channels: int, large_kernel: int, part: int) -> None:
        super().__init__()
        self.PLKB = PartialLargeKernel(channels, large_kernel, part)
        self.DWConv_3 = _depthwise(channels)
        self.conv1_1 = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        large, small = self.PLKB(features), self.DWConv_3(features)
        share = F.gelu(self.conv1_1(torch.cat((large, small), dim=1))).sigmoid()
        return large * share + small * (1 - share)


class ModulationBlock(nn.Module):
    """Distillation, modulation and selection in a row, beside a shortcut."""

    def __init__(self, channels: int, large_kernel: int, part: int) -> None:
        super().__init__()
        self.FDB = Distillation(channels, large_kernel, part)
        self.SFMB = SpatialModulation(channels, large_kernel, part)
        self.FSB = Selection(channels, large_kernel, part)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of 8, to the same shape."""
        return self.FSB(self.SFMB(self.FDB(features))) + features


@ARCHS.register("lkfmixer_b", "lkfmixer")
class LKFMixer(nn.Module):
    """Large kernel feature mixer; defaults are those of the base size.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        channels: channels of the blocks, even.
        num_block: blocks.
        large_kernel: length of the large kernels, odd.
        split_factor: share of the channels that large kernels convolve, above 0 and at most 1.

    Raises:
        ValueError: an argument is out of its range.

    References:
        "LKFMixer: Exploring Large Kernel Feature For Efficient Image Super-Resolution",
        https://github.com/Supereeeee/LKFMixer, as in https://github.com/the-database/traiNNer-redux.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of 8; others are padded."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        channels: int = 48,
        num_block: int = 8,
        large_kernel: int = 31,
        split_factor: float = 0.25,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale)
        require_positive_integers(channels=channels, num_block=num_block)
        require_odd(large_kernel=large_kernel)
        if channels % 2:
            raise ValueError(f"channels must be even, because half of them are drawn off; got {channels}")
        require_expansion(channels, split_factor=split_factor)
        if split_factor > 1:
            raise ValueError(f"split_factor must be at most 1, a share of the channels; got {split_factor!r}")
        part = int(channels * split_factor)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements(minimum=POOLED, multiple=POOLED)
        self.conv_first = nn.Conv2d(num_in_ch, channels, 3, padding=1)
        blocks = nn.Sequential(*(ModulationBlock(channels, large_kernel, part) for _ in range(num_block)))
        self.layers = nn.ModuleDict({"layers": blocks})
        self.conv = _depthwise(channels)
        head = nn.Sequential(nn.Conv2d(channels, num_out_ch * scale**2, 3, padding=1), nn.PixelShuffle(scale))
        self.upsampler = nn.ModuleDict({"upsampleOneStep": head})

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again; published names put the blocks two levels down."""
        return tuple(module for module in self.layers.modules() if isinstance(module, ModulationBlock))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        shallow = self.conv_first(reflect_to_multiple(image, POOLED))
        deep = F.gelu(self.conv(self.layers["layers"](shallow)))
        enlarged = self.upsampler["upsampleOneStep"](deep + shallow)
        return enlarged[..., : height * self.scale, : width * self.scale]


register_preset(LKFMixer, "lkfmixer_l", about="The large LKFMixer", channels=64, num_block=12)
register_preset(LKFMixer, "lkfmixer_t", about="The tiny LKFMixer", channels=40, num_block=6)
