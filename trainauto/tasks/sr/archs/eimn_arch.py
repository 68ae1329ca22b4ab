"""EIMN: large depthwise kernels as attention, and gated perceptrons with weighed channels and pixels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_expansion, require_positive_integers, require_rates
from trainauto.tasks.sr.archs.channel_norms import ChannelLayerNorm
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.swin_block import DropPath

SHARES = 8
"""A large kernel takes three eighths of the channels, a larger one four; an eighth is kept."""
INITIAL_SCALE = 0.01
"""Of the layers beside each shortcut."""
NARROWED = 4
"""Channels are weighed by a quarter of them."""


def _depthwise(channels: int, side: int, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, side, padding=side // 2 * dilation, dilation=dilation, groups=channels)


class MultiOrderAttention(nn.Module):
    """Values gated by what depthwise convolutions of two reaches make of the features."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        near, far = 3 * dim // SHARES, 4 * dim // SHARES
        self.split = (near, dim - near - far, far)
        self.region = _depthwise(dim, 5)
        self.spatial_1 = _depthwise(near, 5, dilation=2)
        self.spatial_2 = _depthwise(far, 7, dilation=3)
        self.fusion = nn.Conv2d(dim, dim, 1)
        self.proj_value = nn.Sequential(nn.Conv2d(dim, dim, 1))
        self.proj_query = nn.Sequential(nn.Conv2d(dim, dim, 1), nn.GELU())
        self.out = nn.Conv2d(dim, dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        near, kept, far = self.region(self.proj_query(features)).split(self.split, dim=1)
        mixed = torch.cat((self.spatial_1(near), kept, self.spatial_2(far)), dim=1)
        return self.out(F.silu(self.fusion(mixed)) * self.proj_value(features))


class DualFusion(nn.Module):
    """Features weighed by channel, from their means, and by pixel, from these means and the pixel."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        narrow = dim // NARROWED
        self.norm = ChannelLayerNorm(dim)
        self.global_reduce = nn.Conv2d(dim, narrow, 1)
        self.local_reduce = nn.Conv2d(dim, narrow, 1)
        self.channel_expand = nn.Conv2d(narrow, dim, 1)
        self.spatial_expand = nn.Conv2d(2 * narrow, 1, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        normed = self.norm(features)
        whole = F.gelu(self.global_reduce(normed.mean((2, 3), keepdim=True)))
        local = F.gelu(self.local_reduce(normed))
        joined = torch.cat((local, whole.expand_as(local)), dim=1)
        return features * (self.channel_expand(whole).sigmoid() * self.spatial_expand(joined).sigmoid())


class GatedPerceptron(nn.Module):
    """A gated perceptron with depthwise convolutions, and :class:`DualFusion` of its output."""

    def __init__(self, dim: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.linear_in = nn.Conv2d(dim, 2 * hidden, 1)
        self.SAL = _depthwise(2 * hidden, 3)
        self.linear_out = nn.Conv2d(hidden, dim, 1)
        self.DFFM = DualFusion(dim)
        self.drop = nn.Dropout(drop)

    def forward(self, features: Tensor) -> Tensor:
        gate, gated = self.SAL(self.linear_in(features)).chunk(2, dim=1)
        return self.drop(self.DFFM(self.linear_out(F.gelu(gate) * gated)))


class EIMNBlock(nn.Module):
    """Attention and a perceptron, each behind batch norm and scaled beside a shortcut."""

    def __init__(self, dim: int, hidden: int, drop: float, drop_path: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(dim), nn.BatchNorm2d(dim)
        self.attn = MultiOrderAttention(dim)
        self.mlp = GatedPerceptron(dim, hidden, drop)
        self.drop_path = DropPath(drop_path)
        self.layer_scale_1 = nn.Parameter(torch.full((dim,), INITIAL_SCALE))
        self.layer_scale_2 = nn.Parameter(torch.full((dim,), INITIAL_SCALE))

    def forward(self, features: Tensor) -> Tensor:
        attended = self.layer_scale_1[:, None, None] * self.attn(self.norm1(features))
        features = features + self.drop_path(attended)
        return features + self.drop_path(self.layer_scale_2[:, None, None] * self.mlp(self.norm2(features)))


@ARCHS.register("eimn_l", "eimn")
class EIMN(nn.Module):
    """Efficient image super-resolution multi-order network; defaults are those of EIMN-L. It normalises over batches.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        embed_dims: channels of the blocks, a multiple of 8.
        depths: blocks in each stage.
        mlp_ratios: hidden channels of the perceptrons, as a multiple of ``embed_dims``.
        drop_rate: dropout of the perceptrons.
        drop_path_rate: how often the last block is left out for a sample in training; earlier blocks less often.
        num_stages: stages, each of which ends with a norm.

    Raises:
        ValueError: an argument is out of its range.

    References:
        X. Liu, X. Liao, X. Shi, L. Qing, C. Ren, "Efficient Information Modulation Network for Image Super-Resolution",
        ECAI 2023, and its repository, https://github.com/liux520/EIMN, as in
        https://github.com/the-database/traiNNer-redux and https://github.com/neosr-project/neosr.
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
        embed_dims: int = 64,
        depths: int = 1,
        mlp_ratios: float = 2.66,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        num_stages: int = 16,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale)
        require_positive_integers(embed_dims=embed_dims, depths=depths, num_stages=num_stages)
        require_expansion(embed_dims, mlp_ratios=mlp_ratios)
        require_rates(drop_rate=drop_rate, drop_path_rate=drop_path_rate)
        if embed_dims % SHARES:
            raise ValueError(f"embed_dims must be a multiple of {SHARES}, the shares of the kernels; got {embed_dims}")
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()
        self.num_stages = num_stages
        self.head = nn.Sequential(nn.Conv2d(num_in_ch, embed_dims, 3, padding=1))
        self.tail = nn.Sequential(nn.Conv2d(embed_dims, num_out_ch * scale**2, 3, padding=1), nn.PixelShuffle(scale))
        hidden, last = int(embed_dims * mlp_ratios), max(num_stages * depths - 1, 1)
        for stage in range(num_stages):
            places = range(stage * depths, (stage + 1) * depths)
            blocks = [EIMNBlock(embed_dims, hidden, drop_rate, drop_path_rate * place / last) for place in places]
            self.add_module(f"block{stage + 1}", nn.ModuleList(blocks))
            self.add_module(f"norm{stage + 1}", nn.LayerNorm(embed_dims))

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again: the blocks of all stages."""
        return tuple(module for module in self.modules() if isinstance(module, EIMNBlock))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        shallow = features = self.head(image)
        for stage in range(1, self.num_stages + 1):
            for block in getattr(self, f"block{stage}"):
                features = block(features)
            features = getattr(self, f"norm{stage}")(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.tail(shallow + features)


register_preset(EIMN, "eimn_a", about="The published EIMN-A, of fewer stages", num_stages=14)
