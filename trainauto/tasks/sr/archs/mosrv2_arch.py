"""MoSRv2: gated convolutions in place of attention, at the resolution of the input."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_channels_that_add, require_positive_integers
from trainauto.tasks.sr.archs.channel_norms import ChannelLayerNorm, ChannelRMSNorm
from trainauto.tasks.sr.archs.gated_convs import BRANCHES, InceptionConv, check_expansion
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.swin_block import INITIAL_STD
from trainauto.tasks.sr.archs.uni_upsample import UniUpsample


class GatedConvs(nn.Module):
    """Gated features, some of them mixed by depthwise convolutions; weighed by channel and added to their input."""

    def __init__(self, dim: int, hidden: int, rms_norm: bool) -> None:
        super().__init__()
        self.split = (hidden, hidden - dim, dim)
        self.norm = ChannelRMSNorm(dim, (1, 1)) if rms_norm else ChannelLayerNorm(dim)
        self.fc1 = nn.Conv2d(dim, 2 * hidden, 3, padding=1)
        self.conv = InceptionConv(dim)
        self.fc2 = nn.Conv2d(hidden, dim, 3, padding=1)
        self.gamma = nn.Parameter(torch.ones(1, dim, 1, 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=INITIAL_STD)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward(self, features: Tensor) -> Tensor:
        gate, kept, mixed = self.fc1(self.norm(features)).split(self.split, dim=1)
        gated = F.mish(gate) * torch.cat((kept, self.conv(mixed)), dim=1)
        return F.mish(self.fc2(gated)) * self.gamma + features


@ARCHS.register("mosrv2")
class MoSRv2(nn.Module):
    """Mamba-out network of gated convolutions; it learns what bilinear enlargement misses.

    Args:
        num_in_ch: channels of the input: 1, or as many as the output has.
        num_out_ch: channels of the output.
        scale: enlargement factor.
        n_block: blocks.
        dim: channels of the blocks, at least 8.
        upsampler: ``pixelshuffledirect``, ``pixelshuffle``, ``nearest+conv``, ``dysample``, ``transpose+conv``,
            ``pa_up``, or ``conv`` at scale 1.
        expansion_ratio: channels of the gate, as a multiple of ``dim``; at least 1.
        mid_dim: channels within the heads ``pixelshuffle``, ``dysample`` and ``pa_up``.
        unshuffle_mod: fold squares of 4 / ``scale`` pixels into channels first at scales 1 and 2, which makes the
            network several times faster, and less exact.
        rms_norm: divide by the root mean square, as neosr's files do, and not by layer norm.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        https://github.com/umzi2/MoSR, as in https://github.com/the-database/traiNNer-redux.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of the folded squares; others are padded."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        n_block: int = 24,
        dim: int = 64,
        upsampler: str = "pixelshuffledirect",
        expansion_ratio: float = 1.5,
        mid_dim: int = 32,
        unshuffle_mod: bool = True,
        rms_norm: bool = False,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, n_block=n_block, dim=dim)
        require_channels_that_add(num_in_ch, num_out_ch)
        if dim < BRANCHES:
            raise ValueError(
                f"dim must be at least {BRANCHES}, because a branch takes one channel in {BRANCHES}; got {dim}"
            )
        hidden = check_expansion("expansion_ratio", expansion_ratio, dim)
        self.folded = 4 // scale if unshuffle_mod and scale < 3 else 1
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements(minimum=self.folded, multiple=self.folded)
        first = nn.Conv2d(num_in_ch * self.folded**2, dim, 3, padding=1)
        self.gblocks = nn.Sequential(
            *((nn.PixelUnshuffle(self.folded), first) if self.folded > 1 else (first,)),
            *(GatedConvs(dim, hidden, rms_norm) for _ in range(n_block)),
            nn.Conv2d(dim, 2 * dim, 3, padding=1),
            nn.Mish(),
            nn.Conv2d(2 * dim, dim, 3, padding=1),
            nn.Mish(),
            nn.Conv2d(dim, dim, 1),
        )
        self.to_img = UniUpsample(upsampler, scale * self.folded, dim, num_out_ch, mid_dim)

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again: blocks share their list with convolutions."""
        return tuple(layer for layer in self.gblocks if isinstance(layer, GatedConvs))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        image = reflect_to_multiple(image, self.folded)
        enlarged = F.interpolate(image, scale_factor=self.scale, mode="bilinear")
        return (self.to_img(self.gblocks(image)) + enlarged)[..., : height * self.scale, : width * self.scale]
