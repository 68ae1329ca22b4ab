"""DUnet: the discriminator of traiNNer-redux's templates."""

from typing import ClassVar

from torch import Tensor, nn

from trainauto.tasks.sr.archs.argument_checks import require_positive_integers
from trainauto.tasks.sr.archs.dysample import GROUPS, DySample
from trainauto.tasks.sr.archs.padding import pad_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.spectral_norm import SpectralNormConv2d

HALVINGS = 3


@ARCHS.register("dunet")
class DUnet(nn.Module):
    """A U-Net that judges every pixel, smooth (Mish) and with a learned enlargement on its way up.

    Sides that are no multiple of 8 are mirrored to the next one and the judgements of what was added are left out; the
    published code fails on them. Weights of traiNNer-redux and of neosr are loaded, whose spectral norms are named
    differently.

    Args:
        num_in_ch: channels of the images it judges.
        num_feat: channels at full size, an even number; doubled with each of the three halvings.

    Raises:
        ValueError: an argument is out of its range.

    References:
        traiNNer-redux and neosr, which name no paper.
    """

    is_discriminator: ClassVar[bool] = True
    num_in_ch: int
    """Channels of the input."""

    def __init__(self, num_in_ch: int = 3, num_feat: int = 64) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_feat=num_feat)
        if 2 * num_feat % GROUPS:
            raise ValueError(f"num_feat must be even, got {num_feat}")
        self.num_in_ch = num_in_ch
        self.in_to_dim = nn.Conv2d(num_in_ch, num_feat, 3, padding=1)
        self.e_x1 = _halving(num_feat)
        self.e_x2 = _halving(num_feat * 2)
        self.e_x3 = _halving(num_feat * 4)
        self.up1 = _doubling(num_feat * 8)
        self.up2 = _doubling(num_feat * 4)
        self.up3 = _doubling(num_feat * 2)
        self.end_conv = nn.Sequential(
            SpectralNormConv2d(num_feat, num_feat, 3, 1, 1),
            nn.Mish(inplace=True),
            SpectralNormConv2d(num_feat, num_feat, 3, 1, 1),
            nn.Mish(inplace=True),
            nn.Conv2d(num_feat, 1, 3, padding=1),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Judge each pixel of (N, num_in_ch, H, W): a logit, (N, 1, H, W), above 0 where it looks real."""
        height, width = image.shape[-2:]
        full = self.in_to_dim(pad_to_multiple(image, 2**HALVINGS))
        half = self.e_x1(full)
        quarter = self.e_x2(half)
        features = self.up1(self.e_x3(quarter)) + quarter
        features = self.up2(features) + half
        features = self.up3(features) + full
        judgements: Tensor = self.end_conv(features)
        return judgements[..., :height, :width]


def _halving(channels: int) -> nn.Sequential:
    conv = SpectralNormConv2d(channels, channels * 2, kernel_size=3, stride=2, padding=1, bias=True)
    return nn.Sequential(conv, nn.Mish(inplace=True))


def _doubling(channels: int) -> nn.Sequential:
    conv = SpectralNormConv2d(channels, channels // 2, kernel_size=3, stride=1, padding=1, bias=True)
    return nn.Sequential(DySample(channels), conv)
