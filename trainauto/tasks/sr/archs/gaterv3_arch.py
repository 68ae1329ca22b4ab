"""GaterV3: a U-Net of gated convolutions beside blocks of SPAN at the resolution of the input."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_channels_that_add,
    require_choice,
    require_finite,
    require_numbers,
    require_positive_integers,
)
from trainauto.tasks.sr.archs.channel_norms import ChannelRMSNorm
from trainauto.tasks.sr.archs.gated_convs import BRANCHES, InceptionConv
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.span_arch import SPAB, Conv3XC
from trainauto.tasks.sr.archs.swin_block import INITIAL_STD
from trainauto.tasks.sr.archs.uni_upsample import FIRST_HEADS, UniUpsample, check_scale

EXPANSION = 1.5
"""Channels of a gate, as a multiple of those of the block."""
HEADS = 16
"""Of attention."""
HASTE = 10
"""The gradients of learned weights of branches are multiplied by it, as published."""


def hastened(weight: Tensor) -> Tensor:
    """Return a weight as it is, whose gradient is :data:`HASTE` times as large."""
    return weight.detach() + HASTE * (weight - weight.detach()) if torch.is_grad_enabled() else weight


class LatentAttention(nn.Module):
    """Attention of 16 heads: between pixels (``flash``), or between the channels of a head.

    The published ``temperature`` of attention between channels is in checkpoints of both.
    """

    temperature: Tensor
    flash: Tensor

    def __init__(self, dim: int, flash: bool) -> None:
        super().__init__()
        self.is_of_pixels = flash
        if flash:
            self.register_buffer("temperature", torch.ones(HEADS, 1, 1))
        else:
            self.temperature = nn.Parameter(torch.ones(HEADS, 1, 1))
        self.register_buffer("flash", torch.tensor([flash]))
        self.qkv = nn.Conv2d(dim, 3 * dim, 1, bias=False)
        self.qkv_dwconv = nn.Conv2d(3 * dim, 3 * dim, 3, padding=1, groups=3 * dim)
        self.project_out = nn.Conv2d(dim, dim, 1, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        parts = self.qkv_dwconv(self.qkv(features)).chunk(3, dim=1)
        query, key, value = (part.unflatten(1, (HEADS, -1)).flatten(3) for part in parts)  # (N, heads, C / heads, H W)
        if self.is_of_pixels:
            mixed = F.scaled_dot_product_attention(query.mT, key.mT, value.mT)
            # Stacked for the same reason as in ESC: the layout that a kernel returns is no part of the network.
            mixed = torch.stack(mixed.unbind(1), dim=1).mT
        else:
            likeness = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT
            mixed = (likeness * self.temperature).softmax(-1) @ value
        return self.project_out(mixed.reshape(features.shape))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        given = state_dict.get(prefix + "flash")
        if type(given) is Tensor and not given.is_meta and bool(given) != self.is_of_pixels:
            args[-1].append(f"{prefix}flash: the file was trained with `flash: {str(bool(given)).lower()}`")
        super()._load_from_state_dict(state_dict, prefix, *args)


class GatedMixer(nn.Module):
    """Gated features, some of them mixed by depthwise convolutions or by attention."""

    def __init__(self, dim: int, mixer: nn.Module) -> None:
        super().__init__()
        hidden = int(EXPANSION * dim)
        self.split = (hidden, hidden - dim, dim)
        self.norm = ChannelRMSNorm(dim)
        self.fc1 = nn.Conv2d(dim, 2 * hidden, 1)
        self.token_mix = mixer
        self.fc2 = nn.Conv2d(hidden, dim, 1)
        self.apply(_initialise)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        gate, kept, mixed = self.fc1(self.norm(features)).split(self.split, dim=1)
        return F.mish(self.fc2(F.mish(gate) * torch.cat((kept, self.token_mix(mixed)), dim=1)))


class ProductOfHalves(nn.Module):
    """One half of the channels times the other."""

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, 2 C, H, W) to (N, C, H, W)."""
        first, second = features.chunk(2, dim=1)
        return first * second


class GatedPair(nn.Module):
    """Convolved features weighed by their means, then a gated mixer; each is weighed by channel beside a shortcut."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        wide = nn.Conv2d(2 * dim, 2 * dim, 3, padding=1, groups=dim)
        self.local = nn.Sequential(ChannelRMSNorm(dim), nn.Conv2d(dim, 2 * dim, 1), wide, ProductOfHalves())
        self.sca = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(dim, dim, 1))
        self.glob = GatedMixer(dim, InceptionConv(dim))
        self.gamma0 = nn.Parameter(torch.ones(1, dim, 1, 1))
        self.gamma1 = nn.Parameter(torch.ones(1, dim, 1, 1))
        self.apply(_initialise)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        local = self.local(features)
        features = local * self.sca(local) * hastened(self.gamma0) + features
        return self.glob(features) * hastened(self.gamma1) + features


class Encoder(nn.Module):
    """Gated pairs; their output is kept for the decoder, and half as large with twice the channels."""

    def __init__(self, dim: int, pairs: int) -> None:
        super().__init__()
        self.gated = nn.Sequential(*(GatedPair(dim) for _ in range(pairs)))
        self.scale = nn.Sequential(nn.Conv2d(dim, dim // 2, 3, padding=1, bias=False), nn.PixelUnshuffle(2))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, C, H, W) to (N, 2 C, H / 2, W / 2) and to what is kept, (N, C, H, W)."""
        kept = self.gated(features)
        return self.scale(kept), kept


class Decoder(nn.Module):
    """Features twice as large with half the channels, joined to those of the encoder; then gated pairs."""

    def __init__(self, dim: int, pairs: int) -> None:
        super().__init__()
        self.scale = nn.Sequential(nn.Conv2d(dim, 2 * dim, 3, padding=1, bias=False), nn.PixelShuffle(2))
        self.gated = nn.Sequential(*(GatedPair(dim // 2) for _ in range(pairs)))
        self.shor = nn.Conv2d(dim, dim // 2, 1)

    def forward(self, features: Tensor, kept: Tensor) -> Tensor:
        """Map (N, C, H, W) and (N, C / 2, 2 H, 2 W) to the latter's shape."""
        return self.gated(self.shor(torch.cat((self.scale(features), kept), dim=1)))


@ARCHS.register("gaterv3_r", "gaterv3")
class GateRV3(nn.Module):
    """A U-Net of gated convolutions, and SPAN beside it; both learn what the enlarged input lacks.

    Args:
        num_in_ch: channels of the input: 1, or as many as the output has.
        num_out_ch: channels of the output.
        scale: enlargement factor.
        dim: channels at the resolution of the input, even and at least 8.
        enc_blocks: gated pairs of each level of the encoder.
        dec_blocks: the same of the decoder, from its lowest resolution; as many levels.
        num_latent: gated mixers at the lowest resolution.
        upsample: ``pixelshuffle``, ``pixelshuffledirect``, ``nearest+conv``, ``dysample``, or ``conv`` at scale 1.
        upsample_mid_dim: channels within the head ``pixelshuffle``.
        end_gamma_init: initial weight of the enlarged input.
        attention: mix by attention at the lowest resolution; its channels are then a multiple of 16.
        sisr_blocks: blocks of SPAN between the first and the last.
        flash: attention is between pixels, and not between channels.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        https://github.com/umzi2/GaterV3, as in https://github.com/the-database/traiNNer-redux.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are halved at each level; others are padded."""
    optional_weights: ClassVar = frozenset({"gamma"})
    """What files may lack: the first published ones have no ``gamma``."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        dim: int = 32,
        enc_blocks: Sequence[int] = (2, 2, 4, 6),
        dec_blocks: Sequence[int] = (2, 2, 2, 2),
        num_latent: int = 8,
        upsample: str = "pixelshuffle",
        upsample_mid_dim: int = 48,
        end_gamma_init: float = 1,
        attention: bool = False,
        sisr_blocks: int = 4,
        flash: bool = True,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, dim=dim)
        require_positive_integers(num_latent=num_latent, upsample_mid_dim=upsample_mid_dim, sisr_blocks=sisr_blocks)
        require_channels_that_add(num_in_ch, num_out_ch)
        require_choice("upsample", upsample, FIRST_HEADS)
        check_scale(upsample, scale)
        require_finite(end_gamma_init=end_gamma_init)
        _check_levels(dim, enc_blocks, dec_blocks, attention)
        self.num_in_ch = num_in_ch
        self.scale = scale
        levels = len(enc_blocks)
        self.multiple = 2**levels
        self.size_requirements = SizeRequirements(minimum=self.multiple, multiple=self.multiple)

        self.in_to_dim = nn.Conv2d(num_in_ch, dim, 3, padding=1)
        self.gater_encode = nn.ModuleList(Encoder(dim * 2**level, pairs) for level, pairs in enumerate(enc_blocks))
        self.span_block0 = SPAB(dim, bias=False)
        self.span_n_b = nn.ModuleList(SPAB(dim, bias=False) for _ in range(sisr_blocks))
        self.span_end = SPAB(dim, bias=False)
        self.sisr_end_conv = Conv3XC(dim, dim, gain=1)
        self.sisr_cat_conv = nn.Conv2d(4 * dim, dim, 1)
        deepest = dim * 2**levels
        mixers = (LatentAttention(deepest, flash) if attention else InceptionConv(deepest) for _ in range(num_latent))
        self.latent = nn.Sequential(*(GatedMixer(deepest, mixer) for mixer in mixers))
        self.decode = nn.ModuleList(Decoder(deepest // 2**level, pairs) for level, pairs in enumerate(dec_blocks))
        self.gamma = nn.Parameter(torch.full((1, num_in_ch, 1, 1), float(end_gamma_init)))
        self.dim_to_in: nn.Module = nn.Conv2d(dim, num_out_ch, 3, padding=1)
        if scale > 1:
            self.dim_to_in = UniUpsample(upsample, scale, dim, num_out_ch, upsample_mid_dim, version=1)
        for name, weight in self.named_parameters():
            if name.endswith(("sk.weight", "sisr_cat_conv.weight")):
                nn.init.normal_(weight, std=INITIAL_STD)

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again, of all levels."""
        named = (module for module in self.modules() if isinstance(module, SPAB | GatedPair))
        return (*named, *self.latent)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.setdefault(prefix + "gamma", self.gamma)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        image = reflect_to_multiple(image, self.multiple)
        shallow = self.in_to_dim(image)
        learned = self.dim_to_in(self._gated(shallow) + self._fine(shallow))
        enlarged = F.interpolate(image, scale_factor=self.scale, mode="nearest") * hastened(self.gamma)
        return (learned + enlarged)[..., : height * self.scale, : width * self.scale]

    def _fine(self, shallow: Tensor) -> Tensor:
        """Return what the blocks of SPAN make of features (N, C, H, W), in the same shape."""
        after_first, _ = self.span_block0(shallow)
        deep = after_first
        for block in self.span_n_b:
            deep, _ = block(deep)
        deep, inside_last = self.span_end(deep)
        return self.sisr_cat_conv(torch.cat((shallow, self.sisr_end_conv(deep), after_first, inside_last), dim=1))

    def _gated(self, features: Tensor) -> Tensor:
        """Return what the U-Net makes of features (N, C, H, W), in the same shape."""
        kept = []
        for encoder in self.gater_encode:
            features, own = encoder(features)
            kept.append(own)
        features = self.latent(features)
        for decoder in self.decode:
            features = decoder(features, kept.pop())
        return features


def _check_levels(dim: int, enc_blocks: Sequence[int], dec_blocks: Sequence[int], attention: bool) -> None:
    for name, blocks in (("enc_blocks", enc_blocks), ("dec_blocks", dec_blocks)):
        require_numbers(name, blocks)
        require_positive_integers(**{f"{name}[{index}]": count for index, count in enumerate(blocks)})
    if len(enc_blocks) != len(dec_blocks):
        raise ValueError(
            f"enc_blocks and dec_blocks must have one entry for each level, got {len(enc_blocks)} and {len(dec_blocks)}"
        )
    if dim < BRANCHES or dim % 2:
        raise ValueError(
            f"dim must be even and at least {BRANCHES}, because a branch takes one channel in {BRANCHES}; got {dim}"
        )
    deepest = dim * 2 ** len(enc_blocks)
    if attention and deepest % HEADS:
        raise ValueError(
            f"attention has {HEADS} heads, which must divide the channels of the lowest level, {deepest} with dim {dim}"
        )


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.normal_(module.weight, std=INITIAL_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


register_preset(
    GateRV3, "gaterv3_s", about="The small GaterV3, of three levels", enc_blocks=(2, 2, 4), dec_blocks=(2, 2, 2)
)
