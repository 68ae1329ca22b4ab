"""ESC: attention once a block, and convolutions that share one large kernel in place of further attention."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_expansion, require_odd, require_positive_integers
from trainauto.tasks.sr.archs.channel_norms import ChannelLayerNorm
from trainauto.tasks.sr.archs.padding import reflect_around, reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.swin_block import from_windows, relative_position_index, to_windows
from trainauto.tasks.sr.archs.uni_upsample import UniUpsample

SMALL_KERNEL = 3
"""Side of the kernels that are computed from the features."""
FIRST_EXPANSION = 2
"""Hidden channels of a block's first perceptron, as a multiple of its channels."""
SLOPE, SKIP_KERNEL = 0.2, 7
BIAS_STD = 0.001


def symmetric(kernel: Tensor) -> Tensor:
    """Return the mean of square kernels (C', C, k, k) over their four turns and the mirror images of these.

    It gives one large kernel the symmetry of images: https://github.com/dslisleedh/IGConv.
    """
    mirrored = (kernel + kernel.flip(2) + kernel.flip(3) + kernel.flip(2, 3)) / 8
    return mirrored + mirrored.transpose(2, 3)


def with_kernels_of_samples(features: Tensor, kernels: Tensor) -> Tensor:
    """Convolve (N, C, H, W) with depthwise 3x3 kernels of each sample, (N, 9 C, 1, 1); the shape stays."""
    channels, height, width = features.shape[1:]
    small = kernels.unflatten(1, (channels, SMALL_KERNEL**2))
    # Each sample has kernels of its own: of a convolution they would be groups, whose count ONNX files fix.
    padded = F.pad(features, (SMALL_KERNEL // 2,) * 4)
    convolved = torch.zeros_like(features)
    for place in range(SMALL_KERNEL**2):
        row, column = divmod(place, SMALL_KERNEL)
        convolved = convolved + padded[..., row : row + height, column : column + width] * small[:, :, place]
    return convolved


class SharedKernelConv(nn.Module):
    """On the first channels, one large kernel that all share beside small depthwise ones computed from their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        last = nn.Conv2d(channels // 2, channels * SMALL_KERNEL**2, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)  # type: ignore[arg-type]
        self.dwc_proj = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels // 2, 1), nn.GELU(), last)

    def forward(self, features: Tensor, kernel: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape; ``kernel`` is (channels, channels, k, k)."""
        mixed, kept = features.split((self.channels, features.shape[1] - self.channels), dim=1)
        own = with_kernels_of_samples(mixed, self.dwc_proj(mixed))
        common = F.conv2d(mixed, kernel, padding=kernel.shape[-1] // 2)
        return torch.cat((common + own, kept), dim=1)


class SharedKernelLayer(nn.Module):
    """A shared kernel and a 1x1 convolution after it."""

    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.plk = SharedKernelConv(channels)
        self.aggr = nn.Conv2d(dim, dim, 1)

    def forward(self, features: Tensor, kernel: Tensor) -> Tensor:
        return self.aggr(self.plk(features, kernel))


class ConvMlp(nn.Module):
    """A perceptron with a depthwise convolution beside a shortcut."""

    def __init__(self, dim: int, expansion: float) -> None:
        super().__init__()
        hidden = int(dim * expansion)
        self.proj = nn.Conv2d(dim, hidden, 1)
        self.dwc = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.aggr = nn.Conv2d(hidden, dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        wide = F.gelu(self.proj(features))
        return self.aggr(F.gelu(self.dwc(wide)) + wide)


class LargeWindowAttention(nn.Module):
    """Multi-head attention in large windows, with a learned bias for every offset between two pixels."""

    def __init__(self, dim: int, window_size: int, num_heads: int) -> None:
        super().__init__()
        self.window_size, self.num_heads = window_size, num_heads
        self.to_qkv = nn.Conv2d(dim, 3 * dim, 1)
        self.to_out = nn.Conv2d(dim, dim, 1)
        self.relative_position_bias = nn.Parameter(BIAS_STD * torch.randn(num_heads, (2 * window_size - 1) ** 2))

    def forward(self, features: Tensor, index: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape; ``index`` (L, L) numbers the offsets from pixels to others."""
        height, width = features.shape[2:]
        padded = reflect_to_multiple(features, self.window_size)
        windows = to_windows(self.to_qkv(padded).permute(0, 2, 3, 1), self.window_size)
        *where, tripled = windows.shape
        # Kernels of attention, and ONNX, take windows as one batch: (N * rows * columns, heads, L, C / heads) each.
        parts = windows.reshape(-1, where[-1], 3, self.num_heads, tripled // 3 // self.num_heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        bias = self.relative_position_bias[:, index].to(query.dtype)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias.unsqueeze(0))
        # Stacked, since kernels differ in how they lay heads out, and an ONNX file holds the layout that was traced.
        attended = torch.stack(attended.unbind(1), dim=2).reshape(*where, tripled // 3)
        joined = from_windows(attended, self.window_size)[:, :height, :width]
        return self.to_out(joined.permute(0, 3, 1, 2))


class MirroredConv(nn.Conv2d):
    """A depthwise convolution whose border is mirrored, as often as it takes."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, SKIP_KERNEL, groups=channels)

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(reflect_around(features, SKIP_KERNEL // 2))


class ESCBlock(nn.Module):
    """Attention and convolutions, each behind a norm and beside a shortcut.

    Args:
        dim: channels of the features.
        pdim: of them, the first that shared kernels convolve.
        conv_blocks: layers of shared kernels.
        window_size: side of the attention windows in pixels.
        num_heads: attention heads.
        exp_ratio: hidden channels of the perceptrons before shared kernels, as a multiple of ``dim``.
        first_expansion: those of the first perceptron.
        use_ln: norms before the layers of shared kernels.
        layer: makes such a layer of ``dim`` and ``pdim``.
    """

    def __init__(
        self,
        dim: int,
        pdim: int,
        conv_blocks: int,
        window_size: int,
        num_heads: int,
        exp_ratio: float,
        *,
        first_expansion: float = FIRST_EXPANSION,
        use_ln: bool = True,
        layer: Callable[[int, int], nn.Module] = SharedKernelLayer,
    ) -> None:
        super().__init__()
        self.ln_proj = ChannelLayerNorm(dim)
        self.proj = ConvMlp(dim, first_expansion)
        self.ln_attn = ChannelLayerNorm(dim)
        self.attn = LargeWindowAttention(dim, window_size, num_heads)
        self.lns = nn.ModuleList([ChannelLayerNorm(dim) if use_ln else nn.Identity() for _ in range(conv_blocks)])
        self.pconvs = nn.ModuleList([layer(dim, pdim) for _ in range(conv_blocks)])
        self.convffns = nn.ModuleList([ConvMlp(dim, exp_ratio) for _ in range(conv_blocks)])
        self.ln_out = ChannelLayerNorm(dim)
        self.conv_out = nn.Conv2d(dim, dim, 3, padding=1)

    def forward(self, features: Tensor, index: Tensor, *kernels: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape; all blocks share ``index`` and ``kernels``."""
        deep = self.proj(self.ln_proj(features))
        deep = deep + self.attn(self.ln_attn(deep), index)
        for norm, conv, mlp in zip(self.lns, self.pconvs, self.convffns, strict=True):
            deep = deep + conv(mlp(norm(deep)), *kernels)
        return self.conv_out(self.ln_out(deep)) + features


def check_blocks(dim: int, pdim: int, num_heads: int, least: int) -> None:
    """Refuse channels that blocks cannot be built of.

    Args:
        dim: channels of the features.
        pdim: of them, the first that shared kernels convolve.
        num_heads: attention heads.
        least: what ``pdim`` must at least be.

    Raises:
        ValueError: naming the argument.
    """
    if not least <= pdim <= dim:
        raise ValueError(f"pdim must be from {least} to dim ({dim}), whose first channels it counts; got {pdim}")
    if dim % num_heads:
        raise ValueError(f"num_heads must divide dim ({dim}), which {num_heads} does not")


def offsets_in_window(window_size: int) -> Tensor:
    """Return (L, L): the number of the offset from each pixel of a window to each, where SwinIR numbers from the other.

    A network holds it once, since a large window has many pairs.
    """
    return (2 * window_size - 1) ** 2 - 1 - relative_position_index(window_size)


def image_shortcut(given: int, dim: int) -> tuple[nn.Module, ...]:
    """Return the layers that lead an image (N, given, H, W) around the blocks: (N, dim, H, W)."""
    first, last = nn.Conv2d(given, 2 * dim, 1), nn.Conv2d(2 * dim, dim, 1)
    return first, MirroredConv(2 * dim), nn.LeakyReLU(SLOPE, inplace=True), last


@ARCHS.register("escrealm")
class ESCRealM(nn.Module):
    """ESC-Real: attention in large windows once a block, emulated by convolutions of one shared kernel between.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor.
        dim: channels of the blocks.
        pdim: of them, the first that the shared kernel convolves.
        kernel_size: side of the shared kernel, odd.
        n_blocks: blocks.
        conv_blocks: layers of the shared kernel in each block.
        window_size: side of the attention windows in pixels.
        num_heads: attention heads; they divide ``dim``.
        exp_ratio: hidden channels of the perceptrons before the shared kernel, as a multiple of ``dim``.
        mid_dim: channels within the heads ``pixelshuffle``, ``dysample`` and ``pa_up``.
        upsampler: ``transpose+conv`` (scales 1 to 4), ``pixelshuffledirect``, ``pixelshuffle``, ``nearest+conv``,
            ``dysample``, ``pa_up``, or ``conv`` at scale 1.
        unshuffle_mod: fold squares of 4 / ``scale`` pixels into channels first at scales 1 and 2.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        D. Lee, S. Yun, Y. Ro, "Emulating Self-attention with Convolution for Efficient Image Super-Resolution", ICCV
        2025, https://arxiv.org/abs/2503.06671; https://github.com/dslisleedh/ESC, as in
        https://github.com/the-database/traiNNer-redux.
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
        n_blocks: int = 10,
        conv_blocks: int = 5,
        window_size: int = 32,
        num_heads: int = 4,
        exp_ratio: float = 2.0,
        mid_dim: int = 64,
        upsampler: str = "transpose+conv",
        unshuffle_mod: bool = False,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, dim=dim, pdim=pdim)
        require_positive_integers(n_blocks=n_blocks, conv_blocks=conv_blocks, window_size=window_size)
        require_positive_integers(num_heads=num_heads)
        require_odd(kernel_size=kernel_size)
        require_expansion(dim, exp_ratio=exp_ratio)
        check_blocks(dim, pdim, num_heads, least=2)
        self.folded = 4 // scale if unshuffle_mod and scale < 3 else 1
        self.num_in_ch = num_in_ch
        self.scale = scale
        side = window_size * self.folded
        self.size_requirements = SizeRequirements(minimum=side, multiple=side)
        self.plk_filter = nn.Parameter(torch.empty(pdim, pdim, kernel_size, kernel_size))
        nn.init.orthogonal_(self.plk_filter)
        self.register_buffer("index", offsets_in_window(window_size), persistent=False)
        given = num_in_ch * self.folded**2
        first = nn.Conv2d(given, dim, 3, padding=1)
        fold = [nn.PixelUnshuffle(self.folded)] if self.folded > 1 else []
        self.proj = nn.Sequential(*fold, first) if fold else first
        self.skip = nn.Sequential(*fold, *image_shortcut(given, dim))
        self.blocks = nn.ModuleList(
            [ESCBlock(dim, pdim, conv_blocks, window_size, num_heads, exp_ratio) for _ in range(n_blocks)]
        )
        self.last = nn.Conv2d(dim, dim, 3, padding=1)
        self.to_img = UniUpsample(upsampler, scale * self.folded, dim, num_out_ch, mid_dim)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        image = reflect_to_multiple(image, self.folded)
        shallow, kernel = self.proj(image), symmetric(self.plk_filter)
        features = shallow
        for block in self.blocks:
            features = block(features, self.index, kernel)
        features = self.last(features) + shallow + self.skip(image)
        return self.to_img(features)[..., : height * self.scale, : width * self.scale]


register_preset(
    ESCRealM,
    "escrealm_xl",
    about="The largest ESC-Real",
    dim=128,
    pdim=32,
    n_blocks=16,
    num_heads=8,
    upsampler="pixelshuffle",
)
