"""LMLT: attention in windows of four resolutions, each on a quarter of the channels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_expansion, require_positive_integers, require_rates
from trainauto.tasks.sr.archs.channel_norms import ChannelLayerNorm
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.swin_block import from_windows, to_windows

WINDOW, LEVELS = 8, 4
MULTIPLE = WINDOW * 2 ** (LEVELS - 1)
"""Sides whose smallest level can be cut into windows."""


class LevelAttention(nn.Module):
    """Attention of one head in windows; values pass a depthwise convolution as well, which tells positions."""

    def __init__(self, channels: int, attn_drop: float, drop: float) -> None:
        super().__init__()
        self.qkv = nn.Linear(channels, 3 * channels)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(channels, channels)
        self.proj_drop = nn.Dropout(drop)
        self.get_v = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of the window, to the same shape."""
        windows = to_windows(features.permute(0, 2, 3, 1), WINDOW)
        query, key, value = self.qkv(windows).chunk(3, dim=-1)
        attention = (query @ key.transpose(-2, -1) * features.shape[1] ** -0.5).softmax(-1)
        mixed = self.attn_drop(attention) @ value + self._placed(value)
        return from_windows(self.proj_drop(self.proj(mixed)), WINDOW).permute(0, 3, 1, 2)

    def _placed(self, value: Tensor) -> Tensor:
        """Convolve values (N, rows, columns, L, C) within each window."""
        channels = value.shape[-1]
        images = value.transpose(-2, -1).reshape(-1, channels, WINDOW, WINDOW)
        return self.get_v(images).reshape(*value.shape[:3], channels, -1).transpose(-2, -1)


class LevelMixer(nn.Module):
    """Attention from the lowest resolution to the highest; each level is told of the one below."""

    def __init__(self, dim: int, attn_drop: float, drop: float) -> None:
        super().__init__()
        self.mfr = nn.ModuleList([LevelAttention(dim // LEVELS, attn_drop, drop) for _ in range(LEVELS)])
        self.aggr = nn.Conv2d(dim, dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of :data:`MULTIPLE`, to the same shape."""
        levels = list(features.chunk(LEVELS, dim=1))
        mixed: list[Tensor] = []
        below = None
        for level in reversed(range(LEVELS)):
            part = F.max_pool2d(levels[level], 2**level) if level else levels[level]
            attended = self.mfr[level](part if below is None else part + below)
            below = _repeated(attended, 2)
            mixed.append(_repeated(attended, 2**level))
        return F.gelu(self.aggr(torch.cat(mixed, dim=1))) * features


def _repeated(features: Tensor, scale: int) -> Tensor:
    return F.interpolate(features, scale_factor=scale, mode="nearest") if scale > 1 else features


class LevelBlock(nn.Module):
    """Mixed levels and a convolutional perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, dim: int, ffn_scale: float, attn_drop: float, drop: float) -> None:
        super().__init__()
        hidden = int(dim * ffn_scale)
        self.norm1, self.norm2 = ChannelLayerNorm(dim), ChannelLayerNorm(dim)
        self.lhsb = LevelMixer(dim, attn_drop, drop)
        ccm = nn.Sequential(nn.Conv2d(dim, hidden, 3, padding=1), nn.GELU(), nn.Conv2d(hidden, dim, 1))
        self.ccm = nn.ModuleDict({"ccm": ccm})

    def forward(self, features: Tensor) -> Tensor:
        features = self.lhsb(self.norm1(features)) + features
        return self.ccm["ccm"](self.norm2(features)) + features


@ARCHS.register("lmlt_base", "lmlt")
class LMLT(nn.Module):
    """Low-to-high multi-level transformer; defaults are those of the base size.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        dim: channels of the blocks, a multiple of 4.
        n_blocks: blocks.
        ffn_scale: hidden channels of the perceptrons, as a multiple of ``dim``.
        drop_rate: dropout of projections.
        attn_drop_rate: dropout of attention.

    Raises:
        ValueError: an argument is out of its range.

    References:
        J. Kim, J. Nang, J. Choe, "LMLT: Low-to-high Multi-Level Vision Transformer for Image Super-Resolution",
        https://arxiv.org/abs/2409.03516, and its repository, https://github.com/jwgdmkj/LMLT.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of 64, the window at an eighth of the resolution; others are padded."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        dim: int = 60,
        n_blocks: int = 8,
        ffn_scale: float = 2.0,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, dim=dim, n_blocks=n_blocks)
        if dim % LEVELS:
            raise ValueError(f"dim must be a multiple of {LEVELS}, the levels that share it; got {dim}")
        require_expansion(dim, ffn_scale=ffn_scale)
        require_rates(drop_rate=drop_rate, attn_drop_rate=attn_drop_rate)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements(minimum=MULTIPLE, multiple=MULTIPLE)
        self.to_feat = nn.Conv2d(num_in_ch, dim, 3, padding=1)
        self.feats = nn.Sequential(*(LevelBlock(dim, ffn_scale, attn_drop_rate, drop_rate) for _ in range(n_blocks)))
        self.to_img = nn.Sequential(nn.Conv2d(dim, num_out_ch * scale**2, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        shallow = self.to_feat(reflect_to_multiple(image, MULTIPLE))
        return self.to_img((self.feats(shallow) + shallow)[..., :height, :width])


register_preset(LMLT, "lmlt_large", about="The large LMLT", dim=84)
register_preset(LMLT, "lmlt_tiny", about="The tiny LMLT", dim=36)
