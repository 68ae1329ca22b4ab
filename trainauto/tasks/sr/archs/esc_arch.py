"""ESC: the network of the paper, its variant of few parameters, and ESC-Real with neosr's and its authors' heads."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_channels_that_add,
    require_expansion,
    require_odd,
    require_positive_integers,
)
from trainauto.tasks.sr.archs.channel_norms import ChannelLayerNorm
from trainauto.tasks.sr.archs.dysample import GROUPS, DySample
from trainauto.tasks.sr.archs.escreal_arch import (
    FIRST_EXPANSION,
    SLOPE,
    SMALL_KERNEL,
    ESCBlock,
    SharedKernelLayer,
    check_blocks,
    image_shortcut,
    offsets_in_window,
    symmetric,
    with_kernels_of_samples,
)
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.uni_upsample import Nearest

SQUEEZED = 4
"""Channels of :class:`DecomposedConv` are squeezed so many times where small kernels are computed."""
FIRST_EXPANSION_FP = 1.5
"""Hidden channels of a block's first perceptron with ``is_fp``, as a multiple of its channels."""


class DecomposedConv(nn.Module):
    """On the first channels, a 1x1 convolution that all share, then depthwise kernels: a large one and small ones.

    The large kernel is shared, too. Each sample has small ones, computed from the means of its channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        squeezed = channels // SQUEEZED
        last = nn.Conv2d(squeezed, channels * SMALL_KERNEL**2, 1)
        self.proj = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), nn.GELU(), last)

    def forward(self, features: Tensor, across: Tensor, within: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape.

        Args:
            features: (N, C, H, W).
            across: (channels, channels, 1, 1), the kernel across channels.
            within: (channels, 1, k, k), the kernel within each.
        """
        mixed, kept = features.split((self.channels, features.shape[1] - self.channels), dim=1)
        small, mixed = self.proj(mixed), F.conv2d(mixed, across)
        common = F.conv2d(mixed, within, padding=within.shape[-1] // 2, groups=self.channels)
        return torch.cat((common + with_kernels_of_samples(mixed, small), kept), dim=1)


class DecomposedLayer(nn.Module):
    """Decomposed kernels and a 1x1 convolution after them."""

    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.plk = DecomposedConv(channels)
        self.aggr = nn.Conv2d(dim, dim, 1)

    def forward(self, features: Tensor, across: Tensor, within: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape; the kernels are those of :class:`DecomposedConv`."""
        return self.aggr(self.plk(features, across, within))


@ARCHS.register("esc")
class ESC(nn.Module):
    """ESC under neosr's name and defaults, which are those of ESC-Real with a head that learns where to look.

    ``realsr: false, use_dysample: false`` makes the network of the paper. Flex attention, which the published code has
    as an option, computes the same as the attention here.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor; without ``use_dysample``, ESC-Real does powers of 2.
        dim: channels of the blocks.
        pdim: of them, the first that shared kernels convolve.
        kernel_size: side of the large kernel, odd.
        n_blocks: blocks.
        conv_blocks: layers of shared kernels in each block.
        window_size: side of the attention windows in pixels.
        num_heads: attention heads; they divide ``dim``.
        exp_ratio: hidden channels of the perceptrons before shared kernels, as a multiple of ``dim``.
        is_fp: the variant of few parameters (ESC-FP), whose large kernel is decomposed; it goes with ``realsr: false``.
        use_dysample: read each new pixel where the network says; it goes with ``realsr``.
        realsr: ESC-Real, which leads the image around the blocks. Otherwise the enlarged image is added to the output.
        use_ln: norms before shared kernels, as in ESC-XL; ESC-Real and ESC-FP always have them.
        authors_head: the head of the authors' ESC-Real, not neosr's: one convolution follows each doubling, and not
            two. It goes with ``realsr`` and ``use_dysample: false``.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        D. Lee, S. Yun, Y. Ro, "Emulating Self-attention with Convolution for Efficient Image Super-Resolution", ICCV
        2025, https://arxiv.org/abs/2503.06671; https://github.com/dslisleedh/ESC, as in
        https://github.com/neosr-project/neosr.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of the window; others are padded where attention is computed."""
    index: Tensor
    """Number of the offset of each pair of pixels of a window; not part of checkpoints."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        dim: int = 64,
        pdim: int = 16,
        kernel_size: int = 13,
        n_blocks: int = 5,
        conv_blocks: int = 5,
        window_size: int = 32,
        num_heads: int = 4,
        exp_ratio: float = 1.25,
        is_fp: bool = False,
        use_dysample: bool = True,
        realsr: bool = True,
        use_ln: bool = False,
        authors_head: bool = False,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, dim=dim, pdim=pdim)
        require_positive_integers(n_blocks=n_blocks, conv_blocks=conv_blocks, window_size=window_size)
        require_positive_integers(num_heads=num_heads)
        require_odd(kernel_size=kernel_size)
        require_expansion(dim, exp_ratio=exp_ratio)
        check_blocks(dim, pdim, num_heads, least=SQUEEZED if is_fp else 2)
        _check_variant(is_fp, use_dysample, realsr, authors_head)
        if not realsr:
            require_channels_that_add(num_in_ch, num_out_ch)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements(minimum=window_size, multiple=window_size)
        self.is_fp, self.realsr = is_fp, realsr
        self.register_buffer("index", offsets_in_window(window_size), persistent=False)
        if is_fp:
            self.lk_channel = nn.Parameter(torch.randn(pdim, pdim, 1, 1))
            self.lk_spatial = nn.Parameter(torch.empty(pdim, 1, kernel_size, kernel_size))
            nn.init.orthogonal_(self.lk_spatial)
        else:
            self.plk_filter = nn.Parameter(torch.empty(pdim, pdim, kernel_size, kernel_size))
            nn.init.orthogonal_(self.plk_filter)
        self.proj = nn.Conv2d(num_in_ch, dim, 3, padding=1)
        blocks = (
            ESCBlock(
                dim,
                pdim,
                conv_blocks,
                window_size,
                num_heads,
                exp_ratio,
                first_expansion=FIRST_EXPANSION_FP if is_fp else FIRST_EXPANSION,
                use_ln=use_ln or realsr or is_fp,
                layer=DecomposedLayer if is_fp else SharedKernelLayer,
            )
            for _ in range(n_blocks)
        )
        self.blocks = nn.ModuleList(blocks)
        self.ln_last = ChannelLayerNorm(dim) if is_fp else nn.Identity()
        self.last = nn.Conv2d(dim, dim, 3, padding=1)
        if realsr:
            self.skip = nn.Sequential(*image_shortcut(num_in_ch, dim))
        self.to_img: nn.Module
        if use_dysample:
            if dim % GROUPS:
                raise ValueError(f"dim must be a multiple of {GROUPS} for use_dysample, got {dim}")
            self.to_img = DySample(dim, num_out_ch, scale)
        elif realsr:
            self.to_img = nn.Sequential(*_doublings(scale, dim, num_out_ch, authors_head))
        else:
            self.to_img = nn.Conv2d(dim, num_out_ch * scale**2, 3, padding=1)

    def _kernels(self) -> tuple[Tensor, ...]:
        """Return the kernels that all layers share."""
        return (self.lk_channel, self.lk_spatial) if self.is_fp else (symmetric(self.plk_filter),)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        shallow, kernels = self.proj(image), self._kernels()
        features = shallow
        for block in self.blocks:
            features = block(features, self.index, *kernels)
        features = self.last(self.ln_last(features)) + shallow
        if self.realsr:
            return self.to_img(features + self.skip(image))
        enlarged = F.interpolate(image, scale_factor=self.scale, mode="bicubic" if self.is_fp else "nearest")
        return F.pixel_shuffle(self.to_img(features), self.scale) + enlarged


def _check_variant(is_fp: bool, use_dysample: bool, realsr: bool, authors_head: bool) -> None:
    if is_fp and realsr:
        raise ValueError("is_fp goes with realsr: false, because there is no ESC-Real of few parameters")
    if use_dysample and not realsr:
        raise ValueError("use_dysample goes with realsr alone; write use_dysample: false beside realsr: false")
    if authors_head and (use_dysample or not realsr):
        raise ValueError("authors_head goes with realsr: true and use_dysample: false, whose head it is")


def _doublings(scale: int, dim: int, made: int, authors_head: bool) -> Iterator[nn.Module]:
    """Yield the layers of a head that doubles step by step, at the places where published files have them."""
    if scale & (scale - 1):
        raise ValueError(f"without use_dysample, ESC-Real does scales that are powers of 2, not {scale}")
    steps, convs = int(math.log2(scale)), 1 if authors_head else 2
    for step in range(steps):
        yield Nearest(2)
        is_last = step == steps - 1
        for _ in range(2 if is_last else convs):
            yield from (nn.Conv2d(dim, dim, 3, padding=1), nn.LeakyReLU(SLOPE, inplace=True))
    yield nn.Conv2d(dim, made, 3, padding=1)


register_preset(ESC, "esc_light", about="The light ESC, of three blocks", n_blocks=3)
register_preset(
    ESC,
    "esc_fp",
    about="ESC of few parameters",
    dim=48,
    num_heads=3,
    is_fp=True,
    use_dysample=False,
    realsr=False,
)
register_preset(ESC, "esc_large", about="The large ESC, of ten wider blocks", n_blocks=10, exp_ratio=2.0)
