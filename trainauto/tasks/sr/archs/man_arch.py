"""MAN: convolutions of large dilated kernels as attention, at several scales."""

import torch
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_positive_integers
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.rgb_mean import RGB_MEAN, MeanShift

EPS = 1e-6
KERNELS = {3: (5, 2), 5: (7, 3), 7: (9, 4)}
"""Attention of three scales: side of the plain kernel -> side of the dilated one behind it, and its dilation."""


def depthwise(channels: int, side: int, dilation: int = 1) -> nn.Conv2d:
    """Make a convolution of each channel by itself that keeps the size of images."""
    return nn.Conv2d(channels, channels, side, padding=side // 2 * dilation, dilation=dilation, groups=channels)


def large_kernel(channels: int, side: int, dilated_side: int, dilation: int) -> nn.Sequential:
    """Make a large kernel of a plain, a dilated and a 1x1 convolution."""
    return nn.Sequential(
        depthwise(channels, side), depthwise(channels, dilated_side, dilation), nn.Conv2d(channels, channels, 1)
    )


class ChannelNorm(nn.Module):
    """Layer norm over the channels of each pixel of (N, C, H, W)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, features: Tensor) -> Tensor:
        variance, mean = torch.var_mean(features, 1, correction=0, keepdim=True)
        normed = (features - mean) * torch.rsqrt(variance + EPS)
        return self.weight[:, None, None] * normed + self.bias[:, None, None]


class LargeKernelAttention(nn.Module):
    """Gates half of the features by attention: a third of the channels each at one of three scales of kernels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        third = channels // 3
        self.norm = ChannelNorm(channels)
        self.scale = nn.Parameter(torch.zeros(1, channels, 1, 1))
        for side, (dilated_side, dilation) in KERNELS.items():
            self.add_module(f"LKA{side}", large_kernel(third, side, dilated_side, dilation))
            self.add_module(f"X{side}", depthwise(third, side))
        self.proj_first = nn.Sequential(nn.Conv2d(channels, 2 * channels, 1))
        self.proj_last = nn.Sequential(nn.Conv2d(channels, channels, 1))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        gate, gated = self.proj_first(self.norm(features)).chunk(2, 1)
        scales = [
            self.get_submodule(f"LKA{side}")(part) * self.get_submodule(f"X{side}")(part)
            for side, part in zip(KERNELS, gate.chunk(3, 1), strict=True)
        ]
        return features + self.scale * self.proj_last(gated * torch.cat(scales, 1))


class SpatialGate(nn.Module):
    """Gates half of the features by a 7x7 convolution of each channel of the other half."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = ChannelNorm(channels)
        self.scale = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.Conv1 = nn.Conv2d(channels, 2 * channels, 1)
        self.DWConv1 = depthwise(channels, 7)
        self.Conv2 = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        gate, gated = self.Conv1(self.norm(features)).chunk(2, 1)
        return features + self.scale * self.Conv2(gated * self.DWConv1(gate))


class AttentionBlock(nn.Module):
    """Attention of large kernels, then a gate; both begin switched off and are opened by a learned ``scale``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.LKA = LargeKernelAttention(channels)
        self.LFE = SpatialGate(channels)

    def forward(self, features: Tensor) -> Tensor:
        return self.LFE(self.LKA(features))


class AttentionTail(nn.Module):
    """Features gated by one large kernel, between 1x1 convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv0 = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.GELU())
        self.att = large_kernel(channels, 7, 9, 3)
        self.conv1 = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        features = self.conv0(features)
        return self.conv1(features * self.att(features))


class BlockGroup(nn.Module):
    """Attention blocks in a row and their tail, with a shortcut around all."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.body = nn.ModuleList(AttentionBlock(channels) for _ in range(blocks))
        self.body_t = AttentionTail(channels)

    def forward(self, features: Tensor) -> Tensor:
        deep = features
        for block in self.body:
            deep = block(deep)
        return features + self.body_t(deep)


@ARCHS.register("man")
class MAN(nn.Module):
    """Multi-scale attention network; defaults are those of the published base.

    Names of weights are those of icandle/MAN, traiNNer-redux and, without ``norm``, neosr.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        n_resblocks: attention blocks in each group.
        n_resgroups: groups of blocks.
        n_feats: channels of the trunk; a multiple of 3.
        norm: subtract the mean of DIV2K from RGB input and add it to the output (zero for other channels).

    Raises:
        ValueError: an argument is out of its range.

    References:
        Y. Wang et al., "Multi-scale Attention Network for Single Image Super-Resolution", CVPRW 2024,
        https://arxiv.org/abs/2209.14145.
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
        n_resblocks: int = 36,
        n_resgroups: int = 1,
        n_feats: int = 180,
        norm: bool = True,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale)
        require_positive_integers(n_resblocks=n_resblocks, n_resgroups=n_resgroups, n_feats=n_feats)
        if n_feats % 3:
            raise ValueError(f"n_feats must be a multiple of 3, because attention has three scales; got {n_feats}")
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()
        self.norm = norm
        if norm:
            is_rgb = num_in_ch == num_out_ch == len(RGB_MEAN)
            self.sub_mean = MeanShift(RGB_MEAN if is_rgb else (0.0,) * num_in_ch, -1)
            self.add_mean = MeanShift(RGB_MEAN if is_rgb else (0.0,) * num_out_ch, 1)

        self.head = nn.Conv2d(num_in_ch, n_feats, 3, padding=1)
        self.body = nn.ModuleList(BlockGroup(n_feats, n_resblocks) for _ in range(n_resgroups))
        if n_resgroups > 1:
            self.body_t = nn.Conv2d(n_feats, n_feats, 3, padding=1)
        self.tail = nn.Sequential(nn.Conv2d(n_feats, num_out_ch * scale**2, 3, padding=1), nn.PixelShuffle(scale))

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again: the blocks of all groups."""
        return tuple(module for module in self.body.modules() if isinstance(module, AttentionBlock))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        shallow = self.head(self.sub_mean(image) if self.norm else image)
        deep = shallow
        for group in self.body:
            deep = group(deep)
        if len(self.body) > 1:
            deep = self.body_t(deep) + shallow
        enlarged = self.tail(deep)
        return self.add_mean(enlarged) if self.norm else enlarged


register_preset(MAN, "man_light", about="The published light MAN", n_resblocks=24, n_feats=60)
register_preset(MAN, "man_tiny", about="The published tiny MAN", n_resblocks=5, n_feats=48)
