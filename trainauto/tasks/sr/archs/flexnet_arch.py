"""FlexNet: attention in windows and channel mixing, each after a depthwise convolution, in a line or as a U-Net."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_choice,
    require_numbers,
    require_positive_integers,
    require_rates,
)
from trainauto.tasks.sr.archs.autocast import without_autocast
from trainauto.tasks.sr.archs.dysample import GROUPS, DySample
from trainauto.tasks.sr.archs.lmlt_arch import WINDOW, LevelAttention
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.span_arch import MergedConv
from trainauto.tasks.sr.archs.uni_upsample import check_scale, nearest_layers, steps_of

PIPELINES = ("linear", "meta")
UPSAMPLERS = ("pixelshuffle", "nearest+conv", "dysample")
LEVELS = 4
"""Of the U-Net."""
LARGEST_SCALE = 255
"""Files of ``nearest+conv`` hold the scale in one byte."""
EPSILON = torch.finfo(torch.float32).eps
"""That of PyTorch's RMSNorm for float32."""


class DoubleConv(nn.Module):
    """Two 3x3 convolutions with Mish beside one of 1x1."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        first, second = (nn.Conv2d(given, out_channels, 3, padding=1) for given in (in_channels, out_channels))
        self.block = nn.Sequential(first, nn.Mish(), second, nn.Mish())
        self.conv11 = nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C_out, H, W)."""
        return self.block(features) + self.conv11(features)


class RMSNorm(nn.RMSNorm):
    """Division by the root mean square of the last dimension, in float32 under autocast and for half precision, too."""

    def forward(self, features: Tensor) -> Tensor:
        """Map (..., C) to the same shape."""
        normed = F.rms_norm(features.float(), self.normalized_shape, self.weight.float(), EPSILON)
        return normed.to(self.weight.dtype)


class OmniShift(nn.Module):
    """A depthwise 5x5 convolution that trains as the weighted sum of the input and convolutions of 1x1, 3x3 and 5x5.

    Unlike that of RTMoSR, it has one weight for all channels and no bias. Every forward pass of evaluation merges it
    anew; checkpoints hold the merged convolution as ``conv5x5_reparam``.

    References:
        Q. Yang et al., "Restore-RWKV", https://arxiv.org/abs/2407.11087.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.groups = channels
        self.conv1x1 = nn.Conv2d(channels, channels, 1, groups=channels, bias=False)
        self.conv3x3 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.conv5x5 = nn.Conv2d(channels, channels, 5, padding=2, groups=channels, bias=False)
        self.alpha = nn.Parameter(torch.randn(4))
        self.conv5x5_reparam = MergedConv(channels, 1, 5, 5, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        if not self.training:
            weight, _ = self.merged()
            return F.conv2d(features, weight, padding=2, groups=self.groups)
        convolved = self.alpha[1] * self.conv1x1(features) + self.alpha[2] * self.conv3x3(features)
        return self.alpha[0] * features + convolved + self.alpha[3] * self.conv5x5(features)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Return weight (C, 1, 5, 5) and bias (C,), which is 0, of the one convolution; computed in float32."""
        dtype = self.alpha.dtype
        with without_autocast(self.alpha.device.type):
            single = self.conv1x1.weight.float()
            branches = (torch.ones_like(single), single, self.conv3x3.weight.float(), self.conv5x5.weight.float())
            padded = (F.pad(branch, ((5 - branch.shape[-1]) // 2,) * 4) for branch in branches)
            weight = torch.tensordot(self.alpha.float(), torch.stack(tuple(padded)), dims=1)
        return weight.to(dtype), torch.zeros_like(weight[:, 0, 0, 0], dtype=dtype)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self.conv5x5_reparam.take(self.merged)
        super()._save_to_state_dict(destination, prefix, keep_vars)


class ShiftedAttention(LevelAttention):
    """Attention of one head in windows, as LMLT's, of shifted features."""

    def __init__(self, channels: int, attn_drop: float, drop: float) -> None:
        super().__init__(channels, attn_drop, drop)
        self.omni_shift = OmniShift(channels)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of the window, to the same shape."""
        return super().forward(self.omni_shift(features))


class ChannelMix(nn.Module):
    """Squares of ReLU as a perceptron's hidden values; its output is gated.

    References:
        B. Peng et al., "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence",
        https://arxiv.org/abs/2404.05892.
    """

    def __init__(self, channels: int, hidden_rate: int, has_norm: bool) -> None:
        super().__init__()
        hidden = hidden_rate * channels
        self.key = nn.Linear(channels, hidden, bias=False)
        self.omni_shift = OmniShift(channels)
        self.key_norm = RMSNorm(hidden) if has_norm else nn.Identity()
        self.receptance = nn.Linear(channels, channels, bias=False)
        self.value = nn.Linear(hidden, channels, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        shifted = self.omni_shift(features).permute(0, 2, 3, 1)
        hidden = self.key_norm(self.key(shifted).relu().square())
        return (self.receptance(shifted).sigmoid() * self.value(hidden)).permute(0, 3, 1, 2)


class MixerBlock(nn.Module):
    """Attention and channel mixing, each behind a norm, weighed by channel and beside a shortcut."""

    def __init__(self, channels: int, hidden_rate: int, channel_norm: bool, attn_drop: float, proj_drop: float) -> None:
        super().__init__()
        self.rn1, self.rn2 = RMSNorm(channels), RMSNorm(channels)
        self.att = ShiftedAttention(channels, attn_drop, proj_drop)
        self.ffn = ChannelMix(channels, hidden_rate, channel_norm)
        self.gamma1 = nn.Parameter(torch.ones(channels))
        self.gamma2 = nn.Parameter(torch.ones(channels))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of the window, to the same shape."""
        features = features + self.gamma1.view(-1, 1, 1) * self.att(_normed(features, self.rn1))
        return features + self.gamma2.view(-1, 1, 1) * self.ffn(_normed(features, self.rn2))


def _normed(features: Tensor, norm: nn.Module) -> Tensor:
    return norm(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class BlockGroup(nn.Module):
    """Blocks in a row; what enters and leaves them is fused by convolutions."""

    def __init__(self, channels: int, blocks: int, *settings: Any) -> None:
        super().__init__()
        self.t_blocks = nn.ModuleList(MixerBlock(channels, *settings) for _ in range(blocks))
        self.conv = DoubleConv(2 * channels, channels)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of the window, to the same shape."""
        deep = features
        for block in self.t_blocks:
            deep = block(deep)
        return self.conv(torch.cat((features, deep), dim=1))


class LinearPipeline(nn.Module):
    """Groups of blocks in a row."""

    def __init__(self, dim: int, num_blocks: Sequence[int], *settings: Any) -> None:
        super().__init__()
        self.att = nn.ModuleList(BlockGroup(dim, blocks, *settings) for blocks in num_blocks)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of the window, to the same shape."""
        for group in self.att:
            features = group(features)
        return features


class Resized(nn.Module):
    """A 3x3 convolution, and pixels folded into channels or channels into pixels."""

    def __init__(self, in_channels: int, out_channels: int, fold: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False), fold)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, 4 C_out, H / 2, W / 2), or to (N, C_out / 4, 2 H, 2 W)."""
        return self.body(features)


class MetaPipeline(nn.Module):
    """A U-Net of four levels, whose decoder has as many blocks as the encoder."""

    def __init__(self, dim: int, num_blocks: Sequence[int], *settings: Any) -> None:
        super().__init__()
        for level, blocks in enumerate(num_blocks):
            width = dim * 2**level
            self.add_module(f"enc{level}", nn.Sequential(BlockGroup(width, blocks, *settings)))
            if level < LEVELS - 1:
                self.add_module(f"down{level + 1}", Resized(width, width // 2, nn.PixelUnshuffle(2)))
                self.add_module(f"up{LEVELS - 1 - level}", Resized(4 * width, 4 * width, nn.PixelShuffle(2)))
                self.add_module(f"dec{LEVELS - 2 - level}", nn.Sequential(BlockGroup(width, blocks, *settings)))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of eight windows, to the same shape."""
        kept = []
        for level in range(LEVELS - 1):
            encoded = self.get_submodule(f"enc{level}")(features)
            features = self.get_submodule(f"down{level + 1}")(encoded)
            kept.append(features)
        features = self.get_submodule(f"enc{LEVELS - 1}")(features)
        for level in range(LEVELS - 1):
            joined = torch.cat((features, kept.pop()), dim=1)
            features = self.get_submodule(f"dec{level}")(self.get_submodule(f"up{level + 1}")(joined))
        return features


@ARCHS.register("flexnet")
class FlexNet(nn.Module):
    """Flexible network: attention in windows and channel mixing after depthwise convolutions that are merged.

    neosr's ``flash_attn`` is not here: it computes something else, and its files hold an entry of that name.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor.
        dim: channels of the blocks at the resolution of the input; even for ``meta`` and ``dysample``.
        num_blocks: blocks of each group; of ``meta``, of each of its four levels.
        hidden_rate: hidden channels of the perceptrons, as a multiple of those of the block.
        channel_norm: normalise hidden channels.
        attn_drop: dropout of attention.
        proj_drop: dropout of projections.
        pipeline_type: ``linear``, or ``meta`` for a U-Net.
        upsampler: ``pixelshuffle``, ``nearest+conv`` (scale 3 and powers of 2) or ``dysample``.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        https://github.com/umzi2/FlexNet, as in https://github.com/the-database/traiNNer-redux.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of the window of 8 pixels at the lowest resolution; others are padded."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        dim: int = 64,
        num_blocks: Sequence[int] = (6, 6, 6, 6, 6, 6),
        hidden_rate: int = 4,
        channel_norm: bool = False,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        pipeline_type: str = "linear",
        upsampler: str = "pixelshuffle",
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, dim=dim)
        require_positive_integers(hidden_rate=hidden_rate)
        require_rates(attn_drop=attn_drop, proj_drop=proj_drop)
        _check_pipeline(pipeline_type, dim, num_blocks)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.multiple = WINDOW * (2 ** (LEVELS - 1) if pipeline_type == "meta" else 1)
        self.size_requirements = SizeRequirements(minimum=self.multiple, multiple=self.multiple)
        self.register_buffer("window_size", torch.tensor(WINDOW, dtype=torch.uint8))
        self.short_cut = DoubleConv(num_in_ch, dim)
        self.in_to_feat = nn.Conv2d(num_in_ch, dim, 3, padding=1)
        pipeline = MetaPipeline if pipeline_type == "meta" else LinearPipeline
        self.pipeline = pipeline(dim, num_blocks, hidden_rate, channel_norm, attn_drop, proj_drop)
        self.to_img = _head(upsampler, scale, dim, num_out_ch)
        if upsampler == "nearest+conv":
            self.register_buffer("scale_factor", torch.tensor(scale, dtype=torch.uint8))

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again, of all groups."""
        return tuple(module for module in self.pipeline.modules() if isinstance(module, MixerBlock))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        given = state_dict.get(prefix + "window_size")
        if type(given) is Tensor and not given.is_meta and given.numel() == 1 and given != WINDOW:
            args[-1].append(f"{prefix}window_size: the file was trained with windows of {given.item()}, not {WINDOW}")
        if hasattr(self, "scale_factor"):  # that of a file is not taken over, as in UniUpsample
            state_dict[prefix + "scale_factor"] = self.scale_factor
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        image = reflect_to_multiple(image, self.multiple)
        features = torch.cat((self.pipeline(self.in_to_feat(image)), self.short_cut(image)), dim=1)
        return self.to_img(features)[..., : height * self.scale, : width * self.scale]


def _check_pipeline(pipeline_type: str, dim: int, num_blocks: Sequence[int]) -> None:
    require_choice("pipeline_type", pipeline_type, PIPELINES)
    require_numbers("num_blocks", num_blocks)
    require_positive_integers(**{f"num_blocks[{index}]": count for index, count in enumerate(num_blocks)})
    if pipeline_type == "meta" and (len(num_blocks) != LEVELS or dim % 2):
        raise ValueError(
            f"pipeline_type 'meta' takes {LEVELS} num_blocks, one for each level, and an even dim; "
            f"got {len(num_blocks)} and {dim}"
        )


def _head(upsampler: str, scale: int, dim: int, made: int) -> nn.Module:
    """Return the layers from twice ``dim`` channels to the output."""
    require_choice("upsampler", upsampler, UPSAMPLERS)
    if upsampler == "dysample":
        if 2 * dim % GROUPS:
            raise ValueError(f"upsampler 'dysample' takes twice dim in groups of {GROUPS}, got {dim}")
        return DySample(2 * dim, made, scale)
    if upsampler == "nearest+conv":
        check_scale(upsampler, scale)
        if scale > LARGEST_SCALE:
            raise ValueError(f"scale must be at most {LARGEST_SCALE} for upsampler 'nearest+conv', got {scale}")
        narrow = nn.Conv2d(2 * dim, dim, 3, padding=1)
        return nn.Sequential(narrow, nn.Sequential(*nearest_layers(steps_of(scale), dim, made)))
    return nn.Sequential(nn.Conv2d(2 * dim, made * scale**2, 3, padding=1), nn.PixelShuffle(scale))


register_preset(FlexNet, "metaflexnet", about="FlexNet as a U-Net", num_blocks=(4, 6, 6, 8), pipeline_type="meta")
