"""MSRResNet: BasicSR's SRResNet without normalisation."""

import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_channels_that_add,
    require_choice,
    require_positive_integers,
)
from trainauto.tasks.sr.archs.edsr_arch import ResidualBlock
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.rrdbnet_arch import near_zero_conv

SLOPE = 0.1
STEPS = {1: (), 2: (2,), 3: (3,), 4: (2, 2)}
"""By scale: the factors by which features are enlarged one after the other."""


@ARCHS.register("msrresnet")
class MSRResNet(nn.Module):
    """Residual blocks whose output is added to the bilinearly enlarged input.

    Names of weights are those of XPixelGroup/BasicSR's files (``basicsr/archs/srresnet_arch.py``), of scales 2, 3, 4.

    Args:
        num_in_ch: channels of the input: 1, or as many as the output has.
        num_out_ch: channels of the output.
        scale: enlargement factor: 1, 2, 3 or 4.
        num_feat: channels of the trunk.
        num_block: residual blocks in the trunk.

    Raises:
        ValueError: an argument is out of its range.

    References:
        C. Ledig et al., "Photo-Realistic Single Image Super-Resolution Using a Generative Adversarial Network", CVPR
        2017, https://arxiv.org/abs/1609.04802; modified as in X. Wang et al., "ESRGAN", ECCVW 2018.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Any side will do."""

    def __init__(
        self, num_in_ch: int = 3, num_out_ch: int = 3, scale: int = 4, num_feat: int = 64, num_block: int = 16
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, num_feat=num_feat, num_block=num_block)
        require_choice("scale", scale, tuple(STEPS))
        require_channels_that_add(num_in_ch, num_out_ch)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()

        self.conv_first = near_zero_conv(num_in_ch, num_feat)
        self.body = nn.Sequential(*(ResidualBlock(num_feat, make_conv=near_zero_conv) for _ in range(num_block)))
        for number, step in enumerate(STEPS[scale], start=1):
            self.add_module(f"upconv{number}", near_zero_conv(num_feat, num_feat * step**2))
        self.conv_hr = near_zero_conv(num_feat, num_feat)
        self.conv_last = near_zero_conv(num_feat, num_out_ch)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        features = self.body(F.leaky_relu(self.conv_first(image), SLOPE, inplace=True))
        for number, step in enumerate(STEPS[self.scale], start=1):
            enlarged = F.pixel_shuffle(self.get_submodule(f"upconv{number}")(features), step)
            features = F.leaky_relu(enlarged, SLOPE, inplace=True)
        detail = self.conv_last(F.leaky_relu(self.conv_hr(features), SLOPE, inplace=True))
        return detail + F.interpolate(image, scale_factor=self.scale, mode="bilinear", align_corners=False)
