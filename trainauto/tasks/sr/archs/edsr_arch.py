"""EDSR: residual blocks without normalisation at low resolution, enlarged by pixel shuffles at the end."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_choice, require_positive_integers
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.rgb_mean import RGB_MEAN
from trainauto.tasks.sr.archs.rrdbnet_arch import STEPS


def plain_conv(in_channels: int, out_channels: int) -> nn.Conv2d:
    """Make a 3x3 convolution that keeps the size of images, with PyTorch's initialisation."""
    return nn.Conv2d(in_channels, out_channels, 3, padding=1)


class ResidualBlock(nn.Module):
    """Two convolutions with ReLU between them, beside a shortcut.

    Args:
        num_feat: channels of the input and the output.
        res_scale: weight of the convolutions beside the shortcut.
        make_conv: makes a 3x3 convolution from its channels.
    """

    def __init__(
        self, num_feat: int, res_scale: float = 1.0, make_conv: Callable[[int, int], nn.Conv2d] = plain_conv
    ) -> None:
        super().__init__()
        self.res_scale = res_scale
        self.conv1 = make_conv(num_feat, num_feat)
        self.conv2 = make_conv(num_feat, num_feat)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.res_scale * self.conv2(F.relu(self.conv1(features), inplace=True))


@ARCHS.register("edsr")
class EDSR(nn.Module):
    """Enhanced deep residual network; defaults are those of the middle size (EDSR-M).

    The large one (EDSR-L) has 256 features, 32 blocks and a ``res_scale`` of 0.1. Names of weights are those of
    XPixelGroup/BasicSR's files (``basicsr/archs/edsr_arch.py``).

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor: 1, 2, 3, 4 or 8.
        num_feat: channels of the trunk.
        num_block: residual blocks in the trunk.
        res_scale: weight of each block's convolutions beside its shortcut. Files do not tell it.
        img_range: factor of the centred input, undone at the output. Files do not tell it.

    Raises:
        ValueError: an argument is out of its range.

    References:
        B. Lim et al., "Enhanced Deep Residual Networks for Single Image Super-Resolution", CVPRW 2017,
        https://arxiv.org/abs/1707.02921.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Any side will do."""
    mean: Tensor
    """What is subtracted from the input and added to the output; not part of checkpoints."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        num_feat: int = 64,
        num_block: int = 16,
        res_scale: float = 1.0,
        img_range: float = 255.0,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, num_feat=num_feat, num_block=num_block)
        require_choice("scale", scale, tuple(STEPS))
        for name, value in (("res_scale", res_scale), ("img_range", img_range)):
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value!r}")
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()
        self.img_range = img_range
        mean = RGB_MEAN if num_in_ch == num_out_ch == 3 else (0.0,)
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)

        self.conv_first = plain_conv(num_in_ch, num_feat)
        self.body = nn.Sequential(*(ResidualBlock(num_feat, res_scale) for _ in range(num_block)))
        self.conv_after_body = plain_conv(num_feat, num_feat)
        self.upsample = nn.Sequential()
        for step in STEPS[scale]:
            self.upsample.extend([plain_conv(num_feat, num_feat * step**2), nn.PixelShuffle(step)])
        self.conv_last = plain_conv(num_feat, num_out_ch)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        shallow = self.conv_first((image - self.mean) * self.img_range)
        deep = self.conv_after_body(self.body(shallow)) + shallow
        return self.conv_last(self.upsample(deep)) / self.img_range + self.mean
