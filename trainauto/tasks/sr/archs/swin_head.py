"""The heads of SwinIR, which networks made after it have as well."""

import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.tasks.sr.archs.argument_checks import require_choice

HEAD_FEATURES = 64
"""Channels of the heads ``pixelshuffle`` and ``nearest+conv``."""
HEAD_SLOPE = 0.01
SLOPE = 0.2
UPSAMPLERS: dict[str, tuple[int, ...] | None] = {
    "pixelshuffle": (1, 2, 3, 4, 8, 16),
    "pixelshuffledirect": None,
    "nearest+conv": (2, 4, 8),
    "": (1,),
}
"""Heads by name, with the scales each can do; None: all."""


class SwinHead(nn.Module):
    """A network that ends with one of SwinIR's heads; its layers are the network's own, by name."""

    upsampler: str
    scale: int

    def add_head(self, embed_dim: int, num_out_ch: int) -> None:
        """Add the layers of the head, under the names of published files."""
        if self.upsampler == "pixelshuffledirect":
            conv = nn.Conv2d(embed_dim, num_out_ch * self.scale**2, 3, padding=1)
            self.upsample = nn.Sequential(conv, nn.PixelShuffle(self.scale))
            return
        if self.upsampler == "":
            self.conv_last = nn.Conv2d(embed_dim, num_out_ch, 3, padding=1)
            return
        narrow = nn.Conv2d(embed_dim, HEAD_FEATURES, 3, padding=1)
        self.conv_before_upsample = nn.Sequential(narrow, nn.LeakyReLU(HEAD_SLOPE, inplace=True))
        if self.upsampler == "pixelshuffle":
            steps = [3] if self.scale == 3 else [2] * (self.scale.bit_length() - 1)
            layers: list[nn.Module] = []
            for step in steps:
                layers += [nn.Conv2d(HEAD_FEATURES, HEAD_FEATURES * step**2, 3, padding=1), nn.PixelShuffle(step)]
            self.upsample = nn.Sequential(*layers)
        else:
            self.doublings = self.scale.bit_length() - 1
            for index in range(self.doublings):
                self.add_module(f"conv_up{index + 1}", nn.Conv2d(HEAD_FEATURES, HEAD_FEATURES, 3, padding=1))
            self.conv_hr = nn.Conv2d(HEAD_FEATURES, HEAD_FEATURES, 3, padding=1)
        self.conv_last = nn.Conv2d(HEAD_FEATURES, num_out_ch, 3, padding=1)

    def enlarge(self, deep: Tensor, centred: Tensor) -> Tensor:
        """Turn features (N, C, H, W) into the centred output (N, num_out_ch, H * scale, W * scale)."""
        if self.upsampler == "pixelshuffledirect":
            return self.upsample(deep)
        if self.upsampler == "":
            return centred + self.conv_last(deep)
        features = self.conv_before_upsample(deep)
        if self.upsampler == "pixelshuffle":
            return self.conv_last(self.upsample(features))
        for index in range(self.doublings):
            doubled = F.interpolate(features, scale_factor=2, mode="nearest")
            features = F.leaky_relu(getattr(self, f"conv_up{index + 1}")(doubled), SLOPE, inplace=True)
        return self.conv_last(F.leaky_relu(self.conv_hr(features), SLOPE, inplace=True))


def residual_conv(dim: int, kind: str) -> nn.Module:
    """Return the convolution at the end of a group: ``1conv``, or ``3conv`` of fewer weights."""
    if kind == "1conv":
        return nn.Conv2d(dim, dim, 3, padding=1)
    return nn.Sequential(
        nn.Conv2d(dim, dim // 4, 3, padding=1),
        nn.LeakyReLU(SLOPE, inplace=True),
        nn.Conv2d(dim // 4, dim // 4, 1),
        nn.LeakyReLU(SLOPE, inplace=True),
        nn.Conv2d(dim // 4, dim, 3, padding=1),
    )


def check_head(upsampler: str, scale: int, num_in_ch: int, num_out_ch: int) -> None:
    """Refuse a head that does not go with the scale or the channels.

    Raises:
        ValueError: naming the heads or scales that do.
    """
    require_choice("upsampler", upsampler, tuple(UPSAMPLERS))
    scales = UPSAMPLERS[upsampler]
    if scales is not None and scale not in scales:
        able = [name for name, known in UPSAMPLERS.items() if known is None or scale in known]
        raise ValueError(
            f"upsampler {upsampler!r} does scales {', '.join(map(str, scales))}, not {scale}; "
            f"scale {scale} is done by {' and '.join(map(repr, able))}"
        )
    if upsampler == "" and num_in_ch not in (1, num_out_ch):
        raise ValueError(
            f"without an upsampler num_in_ch must be 1 or equal num_out_ch ({num_out_ch}), because the input is added "
            f"to the output; got {num_in_ch}"
        )
