"""SPAN: six blocks whose attention is computed from the features themselves, without weights of its own."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_positive_integers
from trainauto.tasks.sr.archs.autocast import without_autocast
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.rgb_mean import RGB_MEAN

GAIN = 2
"""How much wider the inner convolutions of :class:`Conv3XC` are."""


class MergedConv(nn.Module):
    """Place of a merged convolution in checkpoints; nothing is computed from it.

    Its tensors are buffers, so that they are neither counted nor optimised nor averaged as weights.

    Args:
        shape: of the weight, output channels first.
        bias: whether the convolution has a bias.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, *shape: int, bias: bool = True) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(shape))
        self.register_buffer("bias", torch.zeros(shape[0]) if bias else None)

    def take(self, merge: Callable[[], tuple[Tensor, Tensor]]) -> None:
        """Keep the weight and bias that ``merge`` returns at present."""
        with torch.no_grad():
            weight, bias = merge()
            self.weight.copy_(weight)
            if self.bias is not None:
                self.bias.copy_(bias)


class Conv3XC(nn.Module):
    """A 3x3 convolution that trains as a chain of 1x1, 3x3 and 1x1 convolutions beside a 1x1 shortcut.

    The chain is linear, so it equals one 3x3 convolution. In training mode the chain runs as published. In evaluation
    mode every forward pass merges the chain anew and keeps nothing. That costs some millions of multiplications, far
    less than the convolution itself. The merged weights are therefore never stale, whether after an optimizer step,
    loading, averaging, a copy or a change of dtype or device. Gradients pass through the merge.

    Checkpoints hold the merged convolution as ``eval_conv``; every call of ``state_dict()`` updates it.

    Args:
        in_channels: of the input.
        out_channels: of the output.
        gain: how much wider the inner convolutions are.
        bias: whether the convolutions have biases.
    """

    def __init__(self, in_channels: int, out_channels: int, gain: int = GAIN, bias: bool = True) -> None:
        super().__init__()
        self.sk = nn.Conv2d(in_channels, out_channels, 1, bias=bias)
        self.conv = nn.Sequential(
            nn.Conv2d(in_channels, gain * in_channels, 1, bias=bias),
            nn.Conv2d(gain * in_channels, gain * out_channels, 3, bias=bias),
            nn.Conv2d(gain * out_channels, out_channels, 1, bias=bias),
        )
        self.eval_conv = MergedConv(out_channels, in_channels, 3, 3, bias=bias)

    def forward(self, features: Tensor) -> Tensor:
        if self.training:
            # The zeros go around the input of the first link, whose bias they receive like any other pixel.
            return self.conv(F.pad(features, (1, 1, 1, 1))) + self.sk(features)
        weight, bias = self.merged()
        return F.conv2d(features, weight, bias, padding=1)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Return weight (C_out, C_in, 3, 3) and bias (C_out,) of the one convolution that this module equals.

        The products are taken in float32 even under autocast and for weights of half precision. Without biases, the
        bias is 0.
        """
        shortcut = self.sk.weight
        with without_autocast(shortcut.device.type):
            parts = [part.float() for part in self.conv.parameters()]
            if self.sk.bias is None:
                first, middle, last = parts
                bias = torch.zeros_like(last[:, 0, 0, 0])
            else:
                first, first_bias, middle, middle_bias, last, last_bias = parts
                bias = last[:, :, 0, 0] @ (middle.sum((2, 3)) @ first_bias + middle_bias) + last_bias
                bias = bias + self.sk.bias.float()
            first, last = first[:, :, 0, 0], last[:, :, 0, 0]
            chain = middle.permute(0, 2, 3, 1) @ first  # (GAIN * C_out, 3, 3, C_in)
            weight = torch.tensordot(last, chain, dims=1).permute(0, 3, 1, 2)
            weight = weight + F.pad(shortcut.float(), (1, 1, 1, 1))
        return weight.to(shortcut.dtype), bias.to(shortcut.dtype)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self.eval_conv.take(self.merged)
        super()._save_to_state_dict(destination, prefix, keep_vars)


class SPAB(nn.Module):
    """Swift parameter-free attention block: three convolutions; the sigmoid of the last weighs its own output.

    Args:
        channels: of the input and the output.
        activation: between the convolutions.
        bias: whether the convolutions have biases.
    """

    def __init__(self, channels: int, activation: Callable[[Tensor], Tensor] = F.silu, bias: bool = True) -> None:
        super().__init__()
        self.activation = activation
        self.c1_r = Conv3XC(channels, channels, bias=bias)
        self.c2_r = Conv3XC(channels, channels, bias=bias)
        self.c3_r = Conv3XC(channels, channels, bias=bias)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, C, H, W) to the block's output and to the activated output of its first convolution.

        The published network activates in place, so that what it hands on from inside its last block is activated too.
        """
        first = self.activation(self.c1_r(features))
        last = self.c3_r(self.activation(self.c2_r(first)))
        return (last + features) * (torch.sigmoid(last) - 0.5), first


@ARCHS.register("span")
class SPAN(nn.Module):
    """Swift parameter-free attention network, winner of NTIRE 2024's efficient super-resolution challenge.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        feature_channels: channels between the convolutions.
        norm: centre RGB input on the mean of DIV2K (other input on zero) and multiply it by ``img_range``. Files
            trained without it hold an entry ``no_norm``.
        img_range: factor of the centred input.

    Raises:
        ValueError: an argument is out of its range.

    References:
        C. Wan et al., "Swift Parameter-free Attention Network for Efficient Super-Resolution", CVPRW 2024,
        https://arxiv.org/abs/2311.12770.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Any side will do."""
    mean: Tensor
    """What is subtracted from the input: (1, num_in_ch, 1, 1); not part of checkpoints."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        feature_channels: int = 48,
        norm: bool = True,
        img_range: float = 255.0,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale)
        require_positive_integers(feature_channels=feature_channels)
        if not img_range > 0:
            raise ValueError(f"img_range must be above 0 (255 as published, or 1), got {img_range!r}")
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()
        self.norm = norm
        self.img_range = img_range
        mean = RGB_MEAN if num_in_ch == 3 else (0.0,) * num_in_ch
        self.register_buffer("mean", torch.tensor(mean).view(1, num_in_ch, 1, 1), persistent=False)
        if not norm:
            self.register_buffer("no_norm", torch.zeros(1))

        self.conv_1 = Conv3XC(num_in_ch, feature_channels)
        self.block_1 = SPAB(feature_channels)
        self.block_2 = SPAB(feature_channels)
        self.block_3 = SPAB(feature_channels)
        self.block_4 = SPAB(feature_channels)
        self.block_5 = SPAB(feature_channels)
        self.block_6 = SPAB(feature_channels)
        self.conv_cat = nn.Conv2d(4 * feature_channels, feature_channels, 1)
        self.conv_2 = Conv3XC(feature_channels, feature_channels)
        self.upsampler = nn.Sequential(
            nn.Conv2d(feature_channels, num_out_ch * scale**2, 3, padding=1), nn.PixelShuffle(scale)
        )

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again; published names leave no list to hold the blocks."""
        return self.block_1, self.block_2, self.block_3, self.block_4, self.block_5, self.block_6

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        if self.norm:
            image = (image - self.mean) * self.img_range
        shallow = self.conv_1(image)
        after_first, _ = self.block_1(shallow)
        deep = after_first
        for block in (self.block_2, self.block_3, self.block_4, self.block_5):
            deep, _ = block(deep)
        deep, inside_last = self.block_6(deep)
        fused = self.conv_cat(torch.cat((shallow, self.conv_2(deep), after_first, inside_last), 1))
        return self.upsampler(fused)


register_preset(SPAN, "span_s", about="traiNNer-redux's SPAN of the published width, without ``norm``", norm=False)
