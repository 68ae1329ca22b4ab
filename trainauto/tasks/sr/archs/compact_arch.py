"""SRVGGNetCompact: a plain chain of convolutions that works at low resolution to its end."""

import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_channels_that_add,
    require_choice,
    require_positive_integers,
)
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset

ACTIVATIONS = ("prelu", "relu", "leakyrelu")
LEAKY_SLOPE = 0.1


@ARCHS.register("compact", "SRVGGNetCompact")
class SRVGGNetCompact(nn.Module):
    """The small network of Real-ESRGAN's video and general models; it learns what nearest enlargement misses.

    Published as realesr-animevideov3 (16 convolutions) and realesr-general-x4v3 (32 convolutions).

    Args:
        num_in_ch: channels of the input: 1, or as many as the output has.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        num_feat: channels between the convolutions.
        num_conv: convolutions between the first and the last.
        act_type: activation after each convolution but the last: ``prelu``, ``relu`` or ``leakyrelu``.

    Raises:
        ValueError: an argument is out of its range.

    References:
        X. Wang et al., "Real-ESRGAN", ICCVW 2021, https://arxiv.org/abs/2107.10833, and its repository.
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
        num_feat: int = 64,
        num_conv: int = 16,
        act_type: str = "prelu",
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, num_feat=num_feat)
        require_positive_integers(num_conv=num_conv)
        require_choice("act_type", act_type, ACTIVATIONS)
        require_channels_that_add(num_in_ch, num_out_ch)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()

        layers: list[nn.Module] = [nn.Conv2d(num_in_ch, num_feat, 3, padding=1), _activation(act_type, num_feat)]
        for _ in range(num_conv):
            layers += [nn.Conv2d(num_feat, num_feat, 3, padding=1), _activation(act_type, num_feat)]
        layers.append(nn.Conv2d(num_feat, num_out_ch * scale**2, 3, padding=1))
        self.body = nn.Sequential(*layers)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        residual = F.pixel_shuffle(self.body(image), self.scale)
        return residual + F.interpolate(image, scale_factor=self.scale, mode="nearest")


def _activation(name: str, channels: int) -> nn.Module:
    if name == "prelu":
        return nn.PReLU(channels)
    return nn.ReLU(inplace=True) if name == "relu" else nn.LeakyReLU(LEAKY_SLOPE, inplace=True)


register_preset(SRVGGNetCompact, "ultracompact", about="traiNNer's compact of half the depth", num_conv=8)
register_preset(
    SRVGGNetCompact,
    "superultracompact",
    about="traiNNer's compact of half the depth and a third of the width",
    num_feat=24,
    num_conv=8,
)
