"""RRDBNet: the generator of ESRGAN and Real-ESRGAN."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_choice, require_positive_integers
from trainauto.tasks.sr.archs.padding import pad_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset

SLOPE = 0.2
RESIDUAL_SCALE = 0.2
INITIAL_SCALE = 0.1
"""He initialisation is shrunk by this inside dense blocks, so that every block begins close to the identity."""
STEPS = {1: (), 2: (2,), 3: (3,), 4: (2, 2), 8: (2, 2, 2)}
"""By scale: the factors by which features are enlarged one after the other."""
FOLDED_SCALE = 4
"""What the network does of pixels that were folded into channels: blocks of 4 at scale 1, of 2 at scale 2."""


class ResidualDenseBlock(nn.Module):
    """Five convolutions, each of which sees the input and the outputs of all before it."""

    def __init__(self, num_feat: int, num_grow_ch: int) -> None:
        super().__init__()
        self.conv1 = near_zero_conv(num_feat, num_grow_ch)
        self.conv2 = near_zero_conv(num_feat + num_grow_ch, num_grow_ch)
        self.conv3 = near_zero_conv(num_feat + 2 * num_grow_ch, num_grow_ch)
        self.conv4 = near_zero_conv(num_feat + 3 * num_grow_ch, num_grow_ch)
        self.conv5 = near_zero_conv(num_feat + 4 * num_grow_ch, num_feat)

    def forward(self, features: Tensor) -> Tensor:
        seen = [features]
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            seen.append(F.leaky_relu(conv(torch.cat(seen, 1)), SLOPE, inplace=True))
        return features + RESIDUAL_SCALE * self.conv5(torch.cat(seen, 1))


class RRDB(nn.Module):
    """Residual in residual dense block: three dense blocks with a shortcut around them."""

    def __init__(self, num_feat: int, num_grow_ch: int) -> None:
        super().__init__()
        self.rdb1 = ResidualDenseBlock(num_feat, num_grow_ch)
        self.rdb2 = ResidualDenseBlock(num_feat, num_grow_ch)
        self.rdb3 = ResidualDenseBlock(num_feat, num_grow_ch)

    def forward(self, features: Tensor) -> Tensor:
        return features + RESIDUAL_SCALE * self.rdb3(self.rdb2(self.rdb1(features)))


@ARCHS.register("rrdbnet", "esrgan")
class RRDBNet(nn.Module):
    """Residual in residual dense blocks at low resolution, then doublings by nearest enlargement and convolution.

    At scales 1 and 2 blocks of pixels are first folded into channels (Real-ESRGAN's way), so that the trunk works on an
    image of a quarter or half the side; older networks of these scales do without. Published as RealESRGAN_x4plus and
    RealESRGAN_x2plus. Weights of the two older namings are converted by
    :func:`trainauto.tasks.sr.archs.legacy_keys.modern_keys`.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor: 1, 2, 3, 4 or 8. Files of scale 3 have the names and shapes of those of scale 2
            without folding: nothing in them tells the two apart.
        num_feat: channels of the trunk.
        num_block: RRDB blocks in the trunk.
        num_grow_ch: channels that each convolution of a dense block adds.
        use_pixel_unshuffle: fold pixels into channels at scales 1 and 2.

    Raises:
        ValueError: an argument is out of its range.

    References:
        X. Wang et al., "ESRGAN", ECCVW 2018, https://arxiv.org/abs/1809.00219; "Real-ESRGAN", ICCVW 2021,
        https://arxiv.org/abs/2107.10833.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of the pixel blocks that are folded into channels; others are padded."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        num_feat: int = 64,
        num_block: int = 23,
        num_grow_ch: int = 32,
        use_pixel_unshuffle: bool = True,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, num_feat=num_feat)
        require_positive_integers(num_block=num_block, num_grow_ch=num_grow_ch)
        require_choice("scale", scale, tuple(STEPS))
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.shrink = FOLDED_SCALE // scale if use_pixel_unshuffle and scale in (1, 2) else 1
        self.steps = STEPS[scale * self.shrink]
        self.size_requirements = SizeRequirements(minimum=self.shrink, multiple=self.shrink)

        self.conv_first = nn.Conv2d(num_in_ch * self.shrink**2, num_feat, 3, padding=1)
        self.body = nn.Sequential(*(RRDB(num_feat, num_grow_ch) for _ in range(num_block)))
        self.conv_body = nn.Conv2d(num_feat, num_feat, 3, padding=1)
        for number in range(1, len(self.steps) + 1):
            setattr(self, f"conv_up{number}", nn.Conv2d(num_feat, num_feat, 3, padding=1))
        self.conv_hr = nn.Conv2d(num_feat, num_feat, 3, padding=1)
        self.conv_last = nn.Conv2d(num_feat, num_out_ch, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        if self.shrink > 1:
            image = F.pixel_unshuffle(pad_to_multiple(image, self.shrink), self.shrink)
        features = self.conv_first(image)
        features = features + self.conv_body(self.body(features))
        for number, factor in enumerate(self.steps, start=1):
            enlarged = F.interpolate(features, scale_factor=factor, mode="nearest")
            features = F.leaky_relu(getattr(self, f"conv_up{number}")(enlarged), SLOPE, inplace=True)
        features = F.leaky_relu(self.conv_hr(features), SLOPE, inplace=True)
        return self.conv_last(features)[..., : height * self.scale, : width * self.scale]


def near_zero_conv(in_channels: int, out_channels: int) -> nn.Conv2d:
    """Make a 3x3 convolution with shrunk He initialisation and no bias to begin with."""
    conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)
    nn.init.kaiming_normal_(conv.weight)
    with torch.no_grad():
        conv.weight.mul_(INITIAL_SCALE)
        conv.bias.zero_()  # type: ignore[union-attr]
    return conv


register_preset(
    RRDBNet, "esrgan_lite", about="traiNNer's ESRGAN of half the width and half the depth", num_feat=32, num_block=12
)
