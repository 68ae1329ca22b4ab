"""MetaGAN: the discriminator of neosr's templates."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.tasks.sr.archs.argument_checks import require_choice, require_positive_integers
from trainauto.tasks.sr.archs.padding import pad_to
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.spectral_norm import SpectralNormConv2d
from trainauto.tasks.sr.archs.swin_block import DropPath

HEAD_CHANNELS = 32
NORM_GROUPS = 4
HIDDEN_AT_END = 100
WIDENING, WIDENING_OF_ATTENTION = 8 / 3, 1.5
FIRST_STAGE_WITH_ATTENTION = 2
WEIGHT_STD = 0.02
"""Of the first weights; drawn by ``normal_``, for ``trunc_normal_`` at this spread cannot run on fake tensors."""


@ARCHS.register("metagan")
class MetaGAN(nn.Module):
    """Gated convolutions, then gated attention, at ever smaller sides; it judges patches of 64 px.

    Sides below one patch are mirrored up to it. Stochastic depth and dropout draw random numbers, so that a batch in
    pieces is drawn otherwise than a whole one. Of the versions that neosr has had, this is the last: group norms, and
    spectral norm where sides are halved.

    Args:
        in_ch: channels of the images it judges.
        n_class: judgements of each patch; a GAN loss takes one.
        dims: channels of each stage, multiples of 8 where it takes a quarter of the sides and of 4 elsewhere.
        blocks: gated blocks of each stage; those from the third on attend.
        downs: by which each stage divides the sides, 2 or 4.
        drop_path: largest rate of stochastic depth, reached by the last block.
        end_drop: dropout before the judgements.

    Raises:
        ValueError: an argument is out of its range.

    References:
        neosr; W. Yu et al., "MambaOut", CVPR 2025, https://arxiv.org/abs/2405.07992, for the gated blocks.
    """

    is_discriminator: ClassVar[bool] = True
    num_in_ch: int
    """Channels of the input."""

    def __init__(
        self,
        in_ch: int = 3,
        n_class: int = 1,
        dims: Sequence[int] = (48, 96, 192, 288),
        blocks: Sequence[int] = (3, 3, 9, 3),
        downs: Sequence[int] = (4, 4, 2, 2),
        drop_path: float = 0.02,
        end_drop: float = 0.2,
    ) -> None:
        super().__init__()
        require_positive_integers(in_ch=in_ch, n_class=n_class)
        if not 0 < len(dims) == len(blocks) == len(downs):
            raise ValueError(f"dims must be as many as blocks and downs, got {len(dims)}, {len(blocks)}, {len(downs)}")
        for dim, count, down in zip(dims, blocks, downs, strict=True):
            require_positive_integers(dims=dim, blocks=count)
            require_choice("downs", down, (2, 4))
            if dim % (2 * down):
                raise ValueError(f"dims must be multiples of {2 * down} where downs is {down}, got {dim}")
        self.num_in_ch = in_ch
        self.patch_px = prod(downs)
        most = max(sum(blocks) - 1, 1)
        rates = iter([drop_path * place / most for place in range(sum(blocks))])
        stages: list[nn.Module] = []
        for number, (inside, dim, count, down) in enumerate(zip([in_ch, *dims], dims, blocks, downs, strict=False)):
            attends = number >= FIRST_STAGE_WITH_ATTENTION
            stages.append(_Stage(inside, dim, down, attends, [next(rates) for _ in range(count)]))
        self.stages = nn.Sequential(
            *stages,
            SpectralNormConv2d(dims[-1], HIDDEN_AT_END, 1, 1, 0, bias=True),
            nn.Mish(inplace=True),
            nn.Dropout(end_drop),
            SpectralNormConv2d(HIDDEN_AT_END, n_class, 1, 1, 0, bias=True),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Judge the patches of (N, in_ch, H, W): logits, (N, n_class, H', W') with about 1/64 of the sides."""
        # Of a single pixel that is halved, oneDNN's gradients in bfloat16 are now and then no numbers.
        judgements: Tensor = self.stages(pad_to(image, self.patch_px, self.patch_px))
        return judgements


class _Stage(nn.Module):
    """Fewer pixels with more channels, then gated blocks on (N, H, W, C)."""

    def __init__(self, inside: int, dim: int, down: int, attends: bool, rates: Sequence[float]) -> None:
        super().__init__()
        halves = dim // 2
        quarters = nn.Sequential(_halving(inside, halves), nn.Mish(inplace=True), _halving(halves, dim))
        self.down = quarters if down == 4 else _halving(inside, dim)
        self.blocks = nn.Sequential(*(_GatedBlock(dim, attends, rate) for rate in rates))

    def forward(self, features: Tensor) -> Tensor:
        mixed: Tensor = self.blocks(self.down(features).permute(0, 2, 3, 1))
        return mixed.permute(0, 3, 1, 2)


class _GatedBlock(nn.Module):
    """What some channels say of their neighbours, or of all pixels, passes gates that the others make."""

    def __init__(self, dim: int, attends: bool, drop_path: float) -> None:
        super().__init__()
        hidden = int((WIDENING_OF_ATTENTION if attends else WIDENING) * dim)
        self.widths = (hidden, hidden - dim, dim)
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.fc1 = nn.Linear(dim, hidden * 2)
        self.conv = _Attention(dim) if attends else _Neighbours(dim)
        self.fc2 = nn.Linear(hidden, dim)
        self.drop_path = DropPath(drop_path)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.normal_(module.weight, std=WEIGHT_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, features: Tensor) -> Tensor:
        # In float32, as the norm's weight is under autocast.
        gates, kept, mixed = self.fc1(self.norm(features.float())).split(self.widths, dim=-1)
        passed = F.mish(gates) * torch.cat([kept, self.conv(mixed)], dim=-1)
        branch: Tensor = self.drop_path(self.fc2(passed))
        return branch + features


class _Neighbours(nn.Module):
    """A depthwise convolution of (N, H, W, C)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)

    def forward(self, features: Tensor) -> Tensor:
        mixed: Tensor = self.conv(features.permute(0, 3, 1, 2))
        return mixed.permute(0, 2, 3, 1)


class _Attention(nn.Module):
    """Self-attention between all pixels of (N, H, W, C)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.heads = max(1, dim // HEAD_CHANNELS)
        inner = self.heads * HEAD_CHANNELS
        self.qkv = nn.Linear(dim, inner * 3, bias=False)
        self.proj = nn.Linear(inner, dim, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        samples, height, width, _ = features.shape
        asked = self.qkv(features).view(samples, height * width, 3, self.heads, HEAD_CHANNELS)
        queries, keys, values = asked.permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(queries, keys, values)
        together: Tensor = self.proj(found.transpose(1, 2).reshape(samples, height, width, -1))
        return together


def _halving(inside: int, outside: int) -> nn.Sequential:
    conv = SpectralNormConv2d(inside, outside, 3, 2, 1, bias=True)
    return nn.Sequential(conv, nn.GroupNorm(NORM_GROUPS, outside))
