"""ECBSR: 3x3 convolutions that train with branches beside them, some of which look for edges."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_channels_that_add,
    require_choice,
    require_positive_integers,
)
from trainauto.tasks.sr.archs.autocast import without_autocast
from trainauto.tasks.sr.archs.registry import ARCHS

ACTIVATIONS = ("prelu", "relu", "rrelu", "softplus", "linear")
WIDTH = 2
"""How much wider the inside of :class:`WideBranch` is."""
EDGE_STD = 1e-3
"""Of the first weights and biases of filters that look for edges."""
SOBEL_X = ((1.0, 0.0, -1.0), (2.0, 0.0, -2.0), (1.0, 0.0, -1.0))
SOBEL_Y = ((1.0, 2.0, 1.0), (0.0, 0.0, 0.0), (-1.0, -2.0, -1.0))
LAPLACE = ((0.0, 1.0, 0.0), (1.0, -4.0, 1.0), (0.0, 1.0, 0.0))


class WideBranch(nn.Module):
    """A 1x1 convolution that widens, then a 3x3 one; names of weights are those of files."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        first, second = (
            nn.Conv2d(in_channels, WIDTH * out_channels, 1),
            nn.Conv2d(WIDTH * out_channels, out_channels, 3),
        )
        self.k0, self.b0, self.k1, self.b1 = first.weight, first.bias, second.weight, second.bias

    def forward(self, padded: Tensor) -> Tensor:
        """Map (N, C_in, H + 2, W + 2) to (N, C_out, H, W)."""
        return F.conv2d(F.conv2d(padded, self.k0, self.b0), self.k1, self.b1)

    def kernel(self) -> tuple[Tensor, Tensor]:
        """Return weight (C_out, C_in, 3, 3) and bias (C_out,) of the one convolution that this module equals."""
        k0, b0, k1, b1 = (part.float() for part in self.parameters())
        weight = (k1.permute(0, 2, 3, 1) @ k0[:, :, 0, 0]).permute(0, 3, 1, 2)
        return weight, k1.sum((2, 3)) @ b0 + b1


class EdgeBranch(nn.Module):
    """A 1x1 convolution, then on each channel a filter that looks for edges, with a learned weight and bias.

    Args:
        in_channels: of the input.
        out_channels: of the output.
        kernel: the filter, 3 x 3. Files hold it for each channel as ``mask``; it is not trained.
    """

    mask: Tensor

    def __init__(self, in_channels: int, out_channels: int, kernel: tuple[tuple[float, ...], ...]) -> None:
        super().__init__()
        first = nn.Conv2d(in_channels, out_channels, 1)
        self.k0, self.b0 = first.weight, first.bias
        self.scale = nn.Parameter(EDGE_STD * torch.randn(out_channels, 1, 1, 1))
        self.bias = nn.Parameter(EDGE_STD * torch.randn(out_channels))
        self.register_buffer("mask", torch.tensor(kernel).repeat(out_channels, 1, 1, 1))

    def forward(self, padded: Tensor) -> Tensor:
        """Map (N, C_in, H + 2, W + 2) to (N, C_out, H, W)."""
        mixed = F.conv2d(padded, self.k0, self.b0)
        return F.conv2d(mixed, self.scale * self.mask, self.bias, groups=self.mask.shape[0])

    def kernel(self) -> tuple[Tensor, Tensor]:
        """Return weight (C_out, C_in, 3, 3) and bias (C_out,) of the one convolution that this module equals."""
        k0, b0, scale, bias = (part.float() for part in self.parameters())
        kernels = scale * self.mask.float()
        return k0 * kernels, b0 * kernels.sum((1, 2, 3)) + bias


class ECB(nn.Module):
    """Edge-oriented convolution block: in training a 3x3 convolution and four branches, whose outputs are added.

    In evaluation mode the one convolution that they equal is computed from their weights in every forward pass and is
    never kept, so that it cannot be stale.

    Args:
        in_channels: of the input.
        out_channels: of the output.
        act_type: activation behind it, one of :data:`ACTIVATIONS`; ``linear`` is none.
        with_idt: also add the input, where it has as many channels as the output.
    """

    def __init__(self, in_channels: int, out_channels: int, act_type: str, with_idt: bool) -> None:
        super().__init__()
        self.with_idt = with_idt and in_channels == out_channels
        self.conv3x3 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.conv1x1_3x3 = WideBranch(in_channels, out_channels)
        self.conv1x1_sbx = EdgeBranch(in_channels, out_channels, SOBEL_X)
        self.conv1x1_sby = EdgeBranch(in_channels, out_channels, SOBEL_Y)
        self.conv1x1_lpl = EdgeBranch(in_channels, out_channels, LAPLACE)
        self.act = _activation(act_type, out_channels)

    @property
    def branches(self) -> tuple[WideBranch | EdgeBranch, ...]:
        """What is computed beside the 3x3 convolution."""
        return self.conv1x1_3x3, self.conv1x1_sbx, self.conv1x1_sby, self.conv1x1_lpl

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C_out, H, W)."""
        if not self.training:
            weight, bias = self.merged()
            return self.act(F.conv2d(features, weight, bias, padding=1))
        # The zeros go around the input of each 1x1 convolution, whose bias they receive like any other pixel.
        padded = F.pad(features, (1, 1, 1, 1))
        summed = self.conv3x3(features)
        for branch in self.branches:
            summed = summed + branch(padded)
        return self.act(summed + features if self.with_idt else summed)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Return weight (C_out, C_in, 3, 3) and bias (C_out,) of what stands before the activation.

        The sums are taken in float32 even under autocast and for weights of half precision.
        """
        own, own_bias = self.conv3x3.weight, self.conv3x3.bias
        with without_autocast(own.device.type):
            weights, biases = zip(*(branch.kernel() for branch in self.branches), strict=True)
            weight, bias = own.float() + sum(weights), own_bias.float() + sum(biases)  # type: ignore[union-attr]
            if self.with_idt:
                centre = torch.eye(own.shape[0], device=own.device)[:, :, None, None]
                weight = weight + F.pad(centre, (1, 1, 1, 1))
        return weight.to(own.dtype), bias.to(own.dtype)


@ARCHS.register("ecbsr")
class ECBSR(nn.Module):
    """Edge-oriented convolution blocks, which learn what nearest enlargement misses; made for phones.

    Names of weights are those of XPixelGroup/BasicSR's files (``basicsr/archs/ecbsr_arch.py``). Its option files train
    it on the luma of images (1 channel), and one on RGB.

    Args:
        num_in_ch: channels of the input: 1, or as many as the output has.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        num_block: blocks between the first and the last.
        num_channel: channels between the blocks.
        with_idt: add the input of each block to its output. Files do not tell it.
        act_type: activation behind each block but the last: ``prelu``, ``relu``, ``rrelu``, ``softplus`` or ``linear``
            (none).

    Raises:
        ValueError: an argument is out of its range.

    References:
        X. Zhang et al., "Edge-oriented Convolution Block for Real-time Super Resolution on Mobile Devices", ACM
        Multimedia 2021, https://doi.org/10.1145/3474085.3475291.
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
        num_block: int = 4,
        num_channel: int = 16,
        with_idt: bool = False,
        act_type: str = "prelu",
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale)
        require_positive_integers(num_block=num_block, num_channel=num_channel)
        require_choice("act_type", act_type, ACTIVATIONS)
        require_channels_that_add(num_in_ch, num_out_ch)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()

        self.backbone = nn.Sequential(ECB(num_in_ch, num_channel, act_type, with_idt))
        for _ in range(num_block):
            self.backbone.append(ECB(num_channel, num_channel, act_type, with_idt))
        self.backbone.append(ECB(num_channel, num_out_ch * scale**2, "linear", with_idt))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        residual = F.pixel_shuffle(self.backbone(image), self.scale)
        return residual + F.interpolate(image, scale_factor=self.scale, mode="nearest")


def _activation(name: str, channels: int) -> nn.Module:
    if name == "prelu":
        return nn.PReLU(channels)
    return {
        "relu": nn.ReLU(inplace=True),
        "rrelu": nn.RReLU(lower=-0.05, upper=0.05),
        "softplus": nn.Softplus(),
        "linear": nn.Identity(),
    }[name]
