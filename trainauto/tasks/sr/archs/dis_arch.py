"""DIS: a few residual convolutions without norms, for fast inference."""

import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_channels_that_add,
    require_choice,
    require_positive_integers,
)
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset

STEPS = {1: (), 2: (2,), 3: (3,), 4: (2, 2)}
"""By scale: the factors by which features are enlarged one after the other."""


class ResidualConvs(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.act = nn.PReLU(channels)

    def forward(self, features: Tensor) -> Tensor:
        return self.conv2(self.act(self.conv1(features))) + features


class SeparableConv(nn.Module):
    """A depthwise 3x3 convolution and one of 1x1, beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.dw_conv = nn.ModuleDict({"depthwise": depthwise, "pointwise": pointwise})
        self.act = nn.PReLU(channels)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.act(self.dw_conv["pointwise"](self.dw_conv["depthwise"](features)))


class Enlargement(nn.Module):
    """A convolution, a pixel shuffle and an activation."""

    def __init__(self, channels: int, step: int) -> None:
        super().__init__()
        self.step = step
        self.conv = nn.Conv2d(channels, channels * step**2, 3, padding=1)
        self.act = nn.PReLU(channels)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C, H * step, W * step)."""
        return self.act(F.pixel_shuffle(self.conv(features), self.step))


@ARCHS.register("dis_balanced")
class DIS(nn.Module):
    """Direct image supersampling: plain convolutions, whose output is added to the bilinearly enlarged input.

    Args:
        num_in_ch: channels of the input: 1, or as many as the output has.
        num_out_ch: channels of the output.
        scale: enlargement factor: 1, 2, 3 or 4.
        num_features: channels of the blocks.
        num_blocks: residual blocks.
        use_depthwise: convolve by channel, then by pixel, which is faster and less exact.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        https://github.com/Kim2091/DIS, as in https://github.com/the-database/traiNNer-redux.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Any side will do."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        num_features: int = 32,
        num_blocks: int = 12,
        use_depthwise: bool = False,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch)
        require_positive_integers(num_features=num_features, num_blocks=num_blocks)
        require_channels_that_add(num_in_ch, num_out_ch)
        require_choice("scale", scale, tuple(STEPS))
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()
        block = SeparableConv if use_depthwise else ResidualConvs
        self.head = nn.Conv2d(num_in_ch, num_features, 3, padding=1)
        self.head_act = nn.PReLU(num_features)
        self.body = nn.Sequential(*(block(num_features) for _ in range(num_blocks)))
        self.fusion = nn.Conv2d(num_features, num_features, 3, padding=1)
        steps = [Enlargement(num_features, step) for step in STEPS[scale]]
        self.upsampler = steps[0] if len(steps) == 1 else nn.Sequential(*steps)
        self.tail = nn.Conv2d(num_features, num_out_ch, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        shallow = self.head_act(self.head(image))
        learned = self.tail(self.upsampler(self.fusion(self.body(shallow)) + shallow))
        if self.scale == 1:
            return learned + image
        return learned + F.interpolate(image, scale_factor=self.scale, mode="bilinear", align_corners=False)


register_preset(DIS, "dis_fast", about="The faster DIS, of fewer blocks", num_blocks=8)
