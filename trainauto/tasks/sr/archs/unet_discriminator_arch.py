"""UNetDiscriminatorSN: the discriminator of Real-ESRGAN."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.tasks.sr.archs.argument_checks import require_positive_integers
from trainauto.tasks.sr.archs.padding import pad_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.spectral_norm import SpectralNormConv2d

SLOPE = 0.2
HALVINGS = 3


@ARCHS.register("unetdiscriminatorsn")
class UNetDiscriminatorSN(nn.Module):
    """A U-Net that judges every pixel: real or made.

    Published as RealESRGAN_x4plus_netD and its siblings, for fine-tuning. Sides that are no multiple of 8 are mirrored
    to the next one and the judgements of what was added are left out; the published code fails on them.

    Args:
        num_in_ch: channels of the images it judges.
        num_feat: channels at full size; doubled with each of the three halvings.
        skip_connection: add the features of the way down to those of the same size on the way up.

    Raises:
        ValueError: an argument is out of its range.

    References:
        X. Wang et al., "Real-ESRGAN", ICCVW 2021, https://arxiv.org/abs/2107.10833, and its repository.
    """

    is_discriminator: ClassVar[bool] = True
    num_in_ch: int
    """Channels of the input."""

    def __init__(self, num_in_ch: int = 3, num_feat: int = 64, skip_connection: bool = True) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_feat=num_feat)
        self.num_in_ch = num_in_ch
        self.skip_connection = skip_connection
        self.conv0 = nn.Conv2d(num_in_ch, num_feat, 3, padding=1)
        self.conv1 = _halving_conv(num_feat, num_feat * 2)
        self.conv2 = _halving_conv(num_feat * 2, num_feat * 4)
        self.conv3 = _halving_conv(num_feat * 4, num_feat * 8)
        self.conv4 = _conv(num_feat * 8, num_feat * 4)
        self.conv5 = _conv(num_feat * 4, num_feat * 2)
        self.conv6 = _conv(num_feat * 2, num_feat)
        self.conv7 = _conv(num_feat, num_feat)
        self.conv8 = _conv(num_feat, num_feat)
        self.conv9 = nn.Conv2d(num_feat, 1, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """Judge each pixel of (N, num_in_ch, H, W): a logit, (N, 1, H, W), above 0 where it looks real."""
        height, width = image.shape[-2:]
        features = _leaky(self.conv0(pad_to_multiple(image, 2**HALVINGS)))
        seen = [features]
        for conv in (self.conv1, self.conv2, self.conv3):
            features = _leaky(conv(features))
            seen.append(features)
        for conv, skipped in zip((self.conv4, self.conv5, self.conv6), seen[-2::-1], strict=True):
            doubled = F.interpolate(features, scale_factor=2, mode="bilinear", align_corners=False)
            features = _leaky(conv(doubled))
            if self.skip_connection:
                features = features + skipped
        features = _leaky(self.conv8(_leaky(self.conv7(features))))
        return self.conv9(features)[..., :height, :width]


def _leaky(features: Tensor) -> Tensor:
    return F.leaky_relu(features, SLOPE, inplace=True)


def _conv(in_channels: int, out_channels: int) -> SpectralNormConv2d:
    return SpectralNormConv2d(in_channels, out_channels, kernel_size=3, stride=1, padding=1)


def _halving_conv(in_channels: int, out_channels: int) -> SpectralNormConv2d:
    return SpectralNormConv2d(in_channels, out_channels, kernel_size=4, stride=2, padding=1)
