"""EMT: attention in stripes, and in most layers nothing but pixels moved by one in its place."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_above_zero,
    require_choice,
    require_counts,
    require_positive_integers,
)
from trainauto.tasks.sr.archs.elan_arch import DIRECTIONS, moving_kernels
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.rgb_mean import RGB_MEAN_DF2K, MeanShift

FIFTHS = len(DIRECTIONS)
UPSAMPLERS = ("pixelshuffle", "pixelshuffledirect")
Sides = tuple[int, int]


class ShiftedConv(nn.Conv2d):
    """Fifths of the channels moved by a pixel each, or kept, and a 1x1 convolution of all."""

    mask: Tensor

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 1)
        # Published as a weight that is never trained; a buffer is neither counted nor averaged as one.
        self.register_buffer("mask", moving_kernels(in_channels))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, in_channels, H, W) to (N, out_channels, H, W)."""
        moved = F.conv2d(features, self.mask.to(features.dtype), padding=1, groups=self.in_channels)
        return super().forward(moved)


class ShiftedMlp(nn.Module):
    """Two convolutions of moved features with SiLU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = ShiftedConv(dim, hidden), ShiftedConv(hidden, dim)

    def forward(self, features: Tensor) -> Tensor:
        return self.fc2(F.silu(self.fc1(features)))


class PixelMixer(nn.Module):
    """Every fifth channel is kept and the others are moved by a pixel, in a circle; what changed is normalised."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        mask = torch.zeros(dim, 1, 3, 3)
        for first, (row, column) in enumerate(((1, 2), (1, 0), (2, 1), (0, 1), (1, 1))):
            mask[first::FIFTHS, 0, row, column] = 1.0
        self.token_mixer = nn.Module()
        self.token_mixer.register_buffer("mask", mask)
        self.norm = nn.BatchNorm2d(dim)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        mask = self.token_mixer.get_buffer("mask").to(features.dtype)
        around = F.pad(features, (1, 1, 1, 1), mode="circular")
        return self.norm(F.conv2d(around, mask, groups=len(mask)) - features)


class StripeAttention(nn.Module):
    """Attention of equal queries and keys in windows of several sizes, each of which has its share of the channels."""

    def __init__(self, dim: int, num_heads: int, windows: Sequence[Sides], shifts: Sequence[Sides]) -> None:
        super().__init__()
        self.num_heads, self.windows, self.shifts = num_heads, windows, shifts
        self.attn = nn.Sequential(nn.Conv2d(dim, 2 * dim, 1), nn.BatchNorm2d(2 * dim))
        self.proj = nn.Sequential(nn.Conv2d(dim, dim, 1))

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        shares = self.attn(features).chunk(len(self.windows), dim=1)
        mixed = [self._attend(*share) for share in zip(shares, self.windows, self.shifts, strict=True)]
        return self.proj(torch.cat(mixed, dim=1))

    def _attend(self, share: Tensor, window: Sides, shift: Sides) -> Tensor:
        """Map queries and values (N, 2 C, H, W) to (N, C, H, W)."""
        height, width = share.shape[2:]
        padded = reflect_to_multiple(share, *window).roll(shift, (2, 3))
        n, channels, rows, columns = padded.shape
        (down, across), heads = window, self.num_heads
        cut = padded.reshape(n, 2, heads, channels // 2 // heads, rows // down, down, columns // across, across)
        # To (2, N, heads, rows, columns, pixels of a window, channels of a head).
        query, value = cut.permute(1, 0, 2, 4, 6, 5, 7, 3).flatten(5, 6)
        attended = (query @ query.transpose(-2, -1)).softmax(-1) @ value
        joined = attended.unflatten(4, window).permute(0, 1, 6, 2, 4, 3, 5).reshape(n, channels // 2, rows, columns)
        return joined.roll((-shift[0], -shift[1]), (2, 3))[..., :height, :width]


class MixedBlock(nn.Module):
    """Layers of attention, then layers of moved pixels; each is followed by a perceptron, beside shortcuts."""

    def __init__(self, mixers: Sequence[nn.Module], perceptrons: Sequence[nn.Module]) -> None:
        super().__init__()
        self.sa_list, self.mlp_list = nn.ModuleList(mixers), nn.ModuleList(perceptrons)

    def forward(self, features: Tensor) -> Tensor:
        for mixer, perceptron in zip(self.sa_list, self.mlp_list, strict=True):
            features = features + mixer(features)
            features = features + perceptron(features)
        return features


@ARCHS.register("emt")
class EMT(nn.Module):
    """Efficient mixed transformer: few layers of attention in stripes among many of moved pixels.

    It normalises over batches. It subtracts the mean of images in [0, 255], as in traiNNer-redux, though images are in
    [0, 1]. bfloat16 and float16 round features of that size until little of the image is left: train without
    ``use_amp`` and export without ``--half``, or train with ``rgb_range: 1``. At 255, float32 rounding alone may move
    the output by 0.005, and ``export`` then refuses to keep an ONNX file.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor: 3 or a power of 2, and any with ``pixelshuffledirect``.
        upsampler: ``pixelshuffle``, or ``pixelshuffledirect`` of fewer weights.
        dim: channels of the blocks, a multiple of 5.
        n_blocks: blocks.
        n_layers: layers of each block.
        num_heads: attention heads of each window size.
        mlp_ratio: hidden channels of the perceptrons, as a multiple of ``dim``.
        n_GTLs: layers of each block that have attention; the first.
        window_list: height and width of the windows in pixels, by size.
        shift_list: by how far every second layer shifts them down and right.
        rgb_range: factor of the mean of DF2K that is subtracted from RGB input and added to the output. Files hold the
            product.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        L. Zheng et al., "Efficient Mixed Transformer for Single Image Super-Resolution",
        https://arxiv.org/abs/2305.11403, and its repository, https://github.com/Fried-Rice-Lab/FriedRiceLab, as in
        https://github.com/the-database/traiNNer-redux.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of those of all windows; others are padded where attention is computed."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        upsampler: str = "pixelshuffle",
        dim: int = 60,
        n_blocks: int = 6,
        n_layers: int = 6,
        num_heads: int = 3,
        mlp_ratio: int = 2,
        n_GTLs: int = 2,
        window_list: Sequence[Sequence[int]] = ((32, 8), (8, 32)),
        shift_list: Sequence[Sequence[int]] = ((16, 4), (4, 16)),
        rgb_range: float = 255.0,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, dim=dim)
        require_positive_integers(n_blocks=n_blocks, n_layers=n_layers, num_heads=num_heads, mlp_ratio=mlp_ratio)
        require_above_zero(rgb_range=rgb_range)
        _check_head(upsampler, scale)
        windows, shifts = _sides("window_list", window_list), _sides("shift_list", shift_list)
        if isinstance(n_GTLs, bool) or not isinstance(n_GTLs, int) or not 0 <= n_GTLs <= n_layers:
            raise ValueError(f"n_GTLs must be a whole number from 0 to n_layers ({n_layers}), got {n_GTLs!r}")
        if len(windows) != len(shifts):
            raise ValueError(f"window_list and shift_list must be as long, got {len(windows)} and {len(shifts)}")
        if dim % math.lcm(FIFTHS, len(windows) * num_heads):
            raise ValueError(
                f"dim must be a multiple of {FIFTHS} and of num_heads ({num_heads}) times the window sizes "
                f"({len(windows)}), got {dim}"
            )
        self.num_in_ch = num_in_ch
        self.scale = scale
        side = math.lcm(*(side for window in windows for side in window))
        self.size_requirements = SizeRequirements(minimum=side, multiple=side)
        is_rgb = num_in_ch == num_out_ch == len(RGB_MEAN_DF2K)
        self.sub_mean = MeanShift(RGB_MEAN_DF2K if is_rgb else (0.0,) * num_in_ch, -rgb_range)
        self.add_mean = MeanShift(RGB_MEAN_DF2K if is_rgb else (0.0,) * num_out_ch, rgb_range)
        self.head = nn.Conv2d(num_in_ch, dim, 3, padding=1)
        still = [(0, 0)] * len(windows)
        turns = [shifts if index % 2 else still for index in range(n_GTLs)]
        blocks = []
        for _ in range(n_blocks):
            mixers = [StripeAttention(dim, num_heads, windows, turn) for turn in turns]
            moved = [PixelMixer(dim) for _ in range(n_layers - n_GTLs)]
            perceptrons = [ShiftedMlp(dim, dim * mlp_ratio) for _ in range(n_layers)]
            blocks.append(MixedBlock([*mixers, *moved], perceptrons))
        self.body = nn.Sequential(*blocks)
        self.tail = nn.Sequential(*_head(upsampler, scale, dim, num_out_ch))

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again: attention, moved pixels and perceptrons, each by itself."""
        kinds = StripeAttention | PixelMixer | ShiftedMlp
        return tuple(module for module in self.modules() if isinstance(module, kinds))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        shallow = self.head(self.sub_mean(image))
        return self.add_mean(self.tail(self.body(shallow) + shallow))


def _head(upsampler: str, scale: int, dim: int, num_out_ch: int) -> list[nn.Module]:
    if upsampler == "pixelshuffledirect":
        return [nn.Conv2d(dim, num_out_ch * scale**2, 3, padding=1), nn.PixelShuffle(scale)]
    layers: list[nn.Module] = []
    for step in [3] if scale == 3 else [2] * (scale.bit_length() - 1):
        layers += [nn.Conv2d(dim, dim * step**2, 3, padding=1), nn.PixelShuffle(step)]
    return [*layers, nn.Conv2d(dim, num_out_ch, 3, padding=1)]


def _check_head(upsampler: str, scale: int) -> None:
    require_choice("upsampler", upsampler, UPSAMPLERS)
    if upsampler == "pixelshuffle" and scale != 3 and scale & (scale - 1):
        raise ValueError(
            f"upsampler 'pixelshuffle' does scale 3 and powers of 2, not {scale}; 'pixelshuffledirect' does any"
        )


def _sides(name: str, values: Sequence[Sequence[int]]) -> list[Sides]:
    """Return heights and widths, or refuse what is none."""
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{name} must list heights and widths, got {values!r}")
    for index, pair in enumerate(values):
        require_counts(f"{name}[{index}]", pair)
        if len(pair) != 2:
            raise ValueError(f"{name}[{index}] must be a height and a width, got {list(pair)}")
    return [(pair[0], pair[1]) for pair in values]
