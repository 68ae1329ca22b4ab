"""RTMoSR: gated blocks whose convolutions train as several branches and run as one."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_channels_that_add, require_positive_integers
from trainauto.tasks.sr.archs.autocast import without_autocast
from trainauto.tasks.sr.archs.channel_norms import ChannelRMSNorm
from trainauto.tasks.sr.archs.gated_convs import check_expansion
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.span_arch import GAIN, Conv3XC, MergedConv
from trainauto.tasks.sr.archs.swin_block import INITIAL_STD

FOLD = 2
"""Sides of the squares that the token mixer folds into channels."""


class ConvChain(nn.Module):
    """A 1x1 convolution and a 3x3 convolution with nothing between them."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        first = nn.Conv2d(in_channels, GAIN * out_channels, 1)
        second = nn.Conv2d(GAIN * out_channels, out_channels, 3)
        self.k0, self.b0, self.k1, self.b1 = first.weight, first.bias, second.weight, second.bias

    def forward(self, padded: Tensor) -> Tensor:
        """Map (N, C_in, H + 2, W + 2), zeros around the image, to (N, C_out, H, W)."""
        return F.conv2d(F.conv2d(padded, self.k0, self.b0), self.k1, self.b1)

    def as_one(self) -> tuple[Tensor, Tensor]:
        """Return float32 weight (C_out, C_in, 3, 3) and bias (C_out,) of the one convolution that this equals."""
        first, first_bias, second, second_bias = (part.float() for part in self.parameters())
        weight = torch.tensordot(second, first[:, :, 0, 0], dims=([1], [0])).permute(0, 3, 1, 2)
        return weight, second.sum((2, 3)) @ first_bias + second_bias


class BranchedConv(nn.Module):
    """A 3x3 convolution that trains as the weighted sum of a chain, a plain convolution and :class:`Conv3XC`.

    As in SPAN, the merged convolution is computed anew in each forward pass of evaluation, and checkpoints hold it as
    ``conv_3x3_rep``.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = ConvChain(in_channels, out_channels)
        self.conv2 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.conv3 = Conv3XC(in_channels, out_channels)
        self.conv_3x3_rep = MergedConv(out_channels, in_channels, 3, 3)
        self.alpha = nn.Parameter(torch.ones(3))

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return F.conv2d(features, *self.merged(), padding=1)
        chained, plain = self.conv1(F.pad(features, (1, 1, 1, 1))), self.conv2(features)
        return self.alpha[0] * chained + self.alpha[1] * plain + self.alpha[2] * self.conv3(features)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Return weight (C_out, C_in, 3, 3) and bias (C_out,) of the one convolution; computed in float32."""
        plain = self.conv2
        with without_autocast(plain.weight.device.type):
            branches = (self.conv1.as_one(), (plain.weight, plain.bias), self.conv3.merged())
            weights, biases = (torch.stack([part.float() for part in parts]) for parts in zip(*branches, strict=True))  # type: ignore[union-attr]
            share = self.alpha.float()
            weight, bias = torch.tensordot(share, weights, dims=1), share @ biases
        return weight.to(plain.weight.dtype), bias.to(plain.weight.dtype)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self.conv_3x3_rep.take(self.merged)
        super()._save_to_state_dict(destination, prefix, keep_vars)


class OmniShift(nn.Module):
    """A depthwise 5x5 convolution that trains as the weighted sum of the input and convolutions of 1x1, 3x3 and 5x5.

    References:
        Q. Yang et al., "Restore-RWKV", https://arxiv.org/abs/2407.11087.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.groups = channels
        self.conv1x1 = nn.Conv2d(channels, channels, 1, groups=channels)
        self.conv3x3 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.conv5x5 = nn.Conv2d(channels, channels, 5, padding=2, groups=channels)
        self.alpha1 = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.alpha2 = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.alpha3 = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.alpha4 = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.conv5x5_reparam = MergedConv(channels, 1, 5, 5)

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return F.conv2d(features, *self.merged(), padding=2, groups=self.groups)
        convolved = self.alpha2 * self.conv1x1(features) + self.alpha3 * self.conv3x3(features)
        return self.alpha1 * features + convolved + self.alpha4 * self.conv5x5(features)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Return weight (C, 1, 5, 5) and bias (C,) of the one depthwise convolution; computed in float32."""
        dtype = self.alpha1.dtype
        with without_autocast(self.alpha1.device.type):
            weight = F.pad(self.alpha1.float().transpose(0, 1), (2, 2, 2, 2))
            bias = torch.zeros_like(weight[:, 0, 0, 0])
            for alpha, conv in ((self.alpha2, self.conv1x1), (self.alpha3, self.conv3x3), (self.alpha4, self.conv5x5)):
                share, missing = alpha.float(), (5 - conv.kernel_size[0]) // 2
                weight = weight + share.transpose(0, 1) * F.pad(conv.weight.float(), (missing,) * 4)
                bias = bias + share.flatten() * conv.bias.float()  # type: ignore[union-attr]
        return weight.to(dtype), bias.to(dtype)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self.conv5x5_reparam.take(self.merged)
        super()._save_to_state_dict(destination, prefix, keep_vars)


class FoldedPixels(nn.Module):
    """Squares of pixels folded into channels, and their maxima convolved."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.poll = nn.Sequential(nn.MaxPool2d(FOLD), BranchedConv(channels, channels * FOLD**2))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, 4 C, H / 2, W / 2)."""
        return F.pixel_unshuffle(features, FOLD) + self.poll(features)


class ChannelGate(nn.Module):
    """Channels weighed by what two 1x1 convolutions make of their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // 2
        self.squeezing = nn.Sequential(
            nn.Conv2d(channels, inner, 1), nn.ReLU(), nn.Conv2d(inner, channels, 1), nn.Hardsigmoid()
        )

    def forward(self, features: Tensor) -> Tensor:
        return features * self.squeezing(features.mean((2, 3), keepdim=True))


class GatedBlock(nn.Module):
    """Gated features, of which some are mixed at half the resolution; added to their input."""

    def __init__(self, dim: int, hidden: int, dccm: bool, se: bool) -> None:
        super().__init__()
        self.split = (hidden, hidden - dim, dim)
        self.norm = ChannelRMSNorm(dim)
        self.fc1 = BranchedConv(dim, 2 * hidden)
        folded = dim * FOLD**2
        gate = ChannelGate(folded) if se else nn.Identity()
        self.conv = nn.Sequential(FoldedPixels(dim), OmniShift(folded), gate, nn.PixelShuffle(FOLD))
        self.fc2 = BranchedConv(hidden, dim) if dccm else nn.Conv2d(hidden, dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        gate, kept, mixed = self.fc1(self.norm(features)).split(self.split, dim=1)
        gated = F.mish(gate) * torch.cat((kept, self.conv(mixed)), dim=1)
        return F.mish(self.fc2(gated)) + features


@ARCHS.register("rtmosr")
class RTMoSR(nn.Module):
    """Mamba-out network for real time: few gated blocks, merged convolutions, mixing at half the resolution.

    Args:
        num_in_ch: channels of the input: 1, or as many as the output has.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        dim: channels of the blocks.
        ffn_expansion: channels of the gate, as a multiple of ``dim``; at least 1.
        n_blocks: blocks.
        unshuffle_mod: fold squares of 4 / ``scale`` pixels into channels first at scales 1 and 2, which makes the
            network several times faster; scales from 4 on stay as they are.
        dccm: end each block with a merged 3x3 convolution, and not with one of 1x1.
        se: weigh the mixed channels by their means.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        https://github.com/rewaifu/RTMoSR, as in https://github.com/the-database/traiNNer-redux.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are even multiples of the folded squares; others are padded."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        dim: int = 32,
        ffn_expansion: float = 2.0,
        n_blocks: int = 2,
        unshuffle_mod: bool = False,
        dccm: bool = True,
        se: bool = True,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, dim=dim, n_blocks=n_blocks)
        require_channels_that_add(num_in_ch, num_out_ch)
        hidden = check_expansion("ffn_expansion", ffn_expansion, dim)
        if unshuffle_mod and scale == 3:
            raise ValueError("unshuffle_mod goes with scales 1, 2 and from 4 on, not with 3")
        folded = 4 // scale if unshuffle_mod and scale < 4 else 1
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.multiple = FOLD * folded
        self.size_requirements = SizeRequirements(minimum=self.multiple, multiple=self.multiple)
        first = BranchedConv(num_in_ch * folded**2, dim)
        self.to_feat = nn.Sequential(nn.PixelUnshuffle(folded), first) if folded > 1 else first
        self.body = nn.Sequential(*(GatedBlock(dim, hidden, dccm, se) for _ in range(n_blocks)))
        enlarged = scale * folded
        self.to_img = nn.Sequential(BranchedConv(dim, num_out_ch * enlarged**2), nn.PixelShuffle(enlarged))
        self.apply(_initialise)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        learned = self.to_img(self.body(self.to_feat(reflect_to_multiple(image, self.multiple))))
        learned = learned[..., : height * self.scale, : width * self.scale]
        return learned + F.interpolate(image, scale_factor=self.scale, mode="nearest")


def _initialise(module: nn.Module) -> None:
    """Initialise convolutions as published; the chains of :class:`ConvChain` keep PyTorch's initialisation."""
    if isinstance(module, nn.Conv2d):
        nn.init.normal_(module.weight, std=INITIAL_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


register_preset(RTMoSR, "rtmosr_l", about="RTMoSR with folded pixels at scales 1 and 2", unshuffle_mod=True)
register_preset(
    RTMoSR,
    "rtmosr_ul",
    about="The lightest RTMoSR, of narrower gates and 1x1 convolutions",
    ffn_expansion=1.5,
    unshuffle_mod=True,
    dccm=False,
)
