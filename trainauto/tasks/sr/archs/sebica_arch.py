"""Sebica: few channels, batch norms, and attention by pixel and of whole images."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_channels_that_add, require_positive_integers
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset

BLOCKS, BLOCKS_OF_MINI = 6, 4
NARROWED = 8
"""The mini size weighs channels by an eighth of them."""


class PixelAttention(nn.Module):
    """Features weighed by pixel, from mean and maximum of the channels, and by another weight that subclasses give."""

    def __init__(self) -> None:
        super().__init__()
        self.spatial_attention = nn.Sequential(nn.Conv2d(2, 1, 7, padding=3, bias=False), nn.Sigmoid())

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        pixels = torch.cat((features.mean(1, keepdim=True), features.amax(1, keepdim=True)), dim=1)
        return features * self.spatial_attention(pixels) * self.weight_of(features)

    def weight_of(self, features: Tensor) -> Tensor:
        """Return (N, C or 1, 1, 1)."""
        raise NotImplementedError


class ImageAttention(PixelAttention):
    """The further weight is one number for each image.

    The published code means to weigh channels, from both ends. It averages over the channels as well, so that its
    convolutions of three weights see a single number, with zeros beside it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.channel_attention_forward = self._of_mean()
        self.channel_attention_backward = self._of_mean()

    @staticmethod
    def _of_mean() -> nn.Sequential:
        return nn.Sequential(nn.Identity(), nn.Conv1d(1, 1, 3, padding=1, bias=False), nn.Sigmoid())

    def weight_of(self, features: Tensor) -> Tensor:
        mean = features.mean((2, 3)).mean(1).view(-1, 1, 1)
        weight = (self.channel_attention_forward(mean) + self.channel_attention_backward(mean)) / 2
        return weight.unsqueeze(-1)


class ChannelAttention(PixelAttention):
    """The further weight is one number for each channel, from the means of all."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channel_attention = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // NARROWED, 1, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels // NARROWED, channels, 1, bias=False),
            nn.Sigmoid(),
        )

    def weight_of(self, features: Tensor) -> Tensor:
        return self.channel_attention(features)


class SebicaBlock(nn.Module):
    """Convolutions, attention and a perceptron, between batch norms and beside a shortcut."""

    def __init__(self, channels: int, mini: bool) -> None:
        super().__init__()
        wide = 2 * channels
        mixer = nn.Sequential(
            nn.Conv2d(channels, wide, 1),
            nn.BatchNorm2d(wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(wide, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
        )
        perceptron = nn.Sequential(
            nn.Conv2d(channels, wide, 1),
            nn.BatchNorm2d(wide),
            nn.GELU(),
            nn.Conv2d(wide, channels, 1),
            nn.BatchNorm2d(channels),
        )
        self.pre_mixer = nn.ModuleDict({"conv": mixer})
        self.post_mixer = nn.ModuleDict({"ffn": perceptron})
        self.attn = ChannelAttention(channels) if mini else ImageAttention()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        attended = self.attn(self.norm1(self.pre_mixer["conv"](features)))
        return self.norm2(self.post_mixer["ffn"](attended) + attended) + features


@ARCHS.register("sebica")
class Sebica(nn.Module):
    """Spatial and bidirectional channel attention; tiny, for real time. It normalises over batches.

    Args:
        num_in_ch: channels of the input: 1, or as many as the output has.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        N: channels of the blocks.
        mini: four blocks that weigh channels one by one, as neosr's ``sebica_mini``; six blocks otherwise.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        C. Liu, "Sebica: Lightweight Spatial and Efficient Bidirectional Channel Attention Super Resolution Network",
        https://arxiv.org/abs/2410.20546, as in https://github.com/the-database/traiNNer-redux and
        https://github.com/neosr-project/neosr.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Any side will do."""

    def __init__(
        self, num_in_ch: int = 3, num_out_ch: int = 3, scale: int = 4, N: int = 16, mini: bool = False
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, N=N)
        require_channels_that_add(num_in_ch, num_out_ch)
        if mini and N < NARROWED:
            raise ValueError(f"N must be at least {NARROWED} with mini, which narrows channels to an eighth; got {N}")
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()
        self.head = nn.Sequential(nn.Conv2d(num_in_ch, N, 3, padding=1), nn.BatchNorm2d(N), nn.ReLU(inplace=True))
        self.body = nn.Sequential(*(SebicaBlock(N, mini) for _ in range(BLOCKS_OF_MINI if mini else BLOCKS)))
        self.tail = nn.Sequential(nn.Conv2d(N, num_out_ch * scale**2, 1), nn.PixelShuffle(scale))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        learned = self.tail(self.body(self.head(image)))
        return learned + F.interpolate(image, scale_factor=self.scale, mode="bilinear", align_corners=False)


register_preset(Sebica, "sebica_mini", about="Sebica of half the width, as traiNNer-redux has it", N=8)
