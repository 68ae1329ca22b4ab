"""SPANPlus: SPAN of any depth, whose enlargement may learn where to look."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_choice, require_positive_integers, require_rates
from trainauto.tasks.sr.archs.dysample import GROUPS, DySample
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.span_arch import SPAB, Conv3XC

UPSAMPLERS = ("dys", "ps", "conv")
INITIAL_STD = 0.02
"""Of shortcuts and fusing convolutions. Published as a normal distribution cut off at +-2, which is 100 of these away:
``trunc_normal_`` would draw the same, but cannot run on fake tensors."""


class FusedBlocks(nn.Module):
    """Blocks in a row; what enters and leaves them, and what two of them compute, is fused by a 1x1 convolution.

    Args:
        channels: of the input and the output.
        count: blocks between the first and the last.
        drop_rate: how often a channel of the last block's output is left out in training.
    """

    def __init__(self, channels: int, count: int, drop_rate: float) -> None:
        super().__init__()
        self.block_1 = SPAB(channels, F.mish)
        self.block_n = nn.ModuleList(SPAB(channels, F.mish) for _ in range(count))
        self.block_end = SPAB(channels, F.mish)
        self.conv_2 = Conv3XC(channels, channels)
        self.conv_cat = nn.Conv2d(4 * channels, channels, 1)
        self.dropout = nn.Dropout2d(drop_rate)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        after_first, inside = self.block_1(features)
        deep = after_first
        for block in (*self.block_n, self.block_end):
            deep, inside = block(deep)
        deep = self.dropout(self.conv_2(deep))
        return self.conv_cat(torch.cat((features, deep, after_first, inside), 1))


@ARCHS.register("spanplus")
class SPANPlus(nn.Module):
    """SPAN with Mish, in groups of any number of blocks, and without a mean that is subtracted.

    Names of weights are those of the files of umzi2/SPANPlus, neosr and traiNNer-redux.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        blocks: for each group of blocks, how many stand between its first and its last.
        feature_channels: channels between the convolutions; for ``dys`` a multiple of 4.
        drop_rate: how often a channel at the end of a group is left out in training.
        upsampler: ``dys`` (each new pixel is read where the network says), ``ps`` (pixel shuffle), or ``conv`` (scale
            1 alone).

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        umzi2/SPANPlus (``neosr/archs/spanplus_arch.py``); after C. Wan et al., "Swift Parameter-free Attention Network
        for Efficient Super-Resolution", CVPRW 2024, https://arxiv.org/abs/2311.12770.
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
        blocks: Sequence[int] = (4,),
        feature_channels: int = 48,
        drop_rate: float = 0.0,
        upsampler: str = "dys",
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale)
        require_positive_integers(feature_channels=feature_channels)
        _check_blocks(blocks, drop_rate)
        _check_upsampler(upsampler, scale, feature_channels)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()

        groups = (FusedBlocks(feature_channels, count, drop_rate) for count in blocks)
        self.feats = nn.Sequential(Conv3XC(num_in_ch, feature_channels), *groups)
        self.upsampler: nn.Module
        if upsampler == "dys":
            self.upsampler = DySample(feature_channels, num_out_ch, scale)
        elif upsampler == "ps":
            wide = nn.Conv2d(feature_channels, num_out_ch * scale**2, 3, padding=1)
            self.upsampler = nn.Sequential(wide, nn.PixelShuffle(scale))
        else:
            self.upsampler = nn.Conv2d(feature_channels, num_out_ch, 3, padding=1)
        for name, weight in self.feats.named_parameters():
            if name.endswith(("sk.weight", "conv_cat.weight")):
                nn.init.normal_(weight, std=INITIAL_STD)

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again; published names leave no list to hold the blocks."""
        return tuple(module for module in self.feats.modules() if isinstance(module, SPAB))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        return self.upsampler(self.feats(image))


def _check_blocks(blocks: Sequence[int], drop_rate: float) -> None:
    if not isinstance(blocks, list | tuple) or not blocks:
        raise ValueError(f"blocks must list one whole number for each group of blocks, got {blocks!r}")
    for index, count in enumerate(blocks):
        require_positive_integers(**{f"blocks[{index}]": count})
    require_rates(drop_rate=drop_rate)


def _check_upsampler(upsampler: str, scale: int, feature_channels: int) -> None:
    require_choice("upsampler", upsampler, UPSAMPLERS)
    if upsampler == "conv" and scale != 1:
        raise ValueError(f"upsampler 'conv' does scale 1 alone; scale {scale} is done by 'dys' and 'ps'")
    if upsampler == "dys" and feature_channels % GROUPS:
        raise ValueError(f"feature_channels must be a multiple of {GROUPS} for upsampler 'dys', got {feature_channels}")


register_preset(SPANPlus, "spanplus_s", about="The small SPANPlus", blocks=(2,), feature_channels=32)
register_preset(SPANPlus, "spanplus_st", about="SPANPlus with a pixel shuffle", upsampler="ps")
register_preset(
    SPANPlus,
    "spanplus_sts",
    about="The small SPANPlus with a pixel shuffle",
    blocks=(2,),
    feature_channels=32,
    upsampler="ps",
)
