"""HiT-SR: windows that grow from block to block, and correlations without softmax within them.

Features are (N, H, W, C) here, as in :mod:`.swin_block`. A window has h x w = L pixels; what it is compared with are
M cells, the pixels of a base window or the patches that a larger window has in their place.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_above_zero,
    require_choice,
    require_expansion,
    require_numbers,
    require_positive_integers,
    require_rates,
)
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.rgb_mean import RGB_MEAN
from trainauto.tasks.sr.archs.swin_block import INITIAL_STD, DropPath, Mlp, NormOnly, WindowAttention
from trainauto.tasks.sr.archs.swin_head import SLOPE, SwinHead, check_head, residual_conv

SQUEEZE = 5
"""The inner convolutions of :class:`DualFeatures` have so many times fewer channels."""
NARROWEST = 16
"""Least channels: a quarter of a quarter of them is what position biases are computed in."""
Sides = tuple[int, int]


class DualFeatures(nn.Module):
    """A narrow chain of convolutions, multiplied with a 1x1 convolution of the same input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        inner = dim // SQUEEZE
        self.conv = nn.Sequential(
            nn.Conv2d(dim, inner, 1),
            nn.LeakyReLU(SLOPE, inplace=True),
            nn.Conv2d(inner, inner, 3, padding=1),
            nn.LeakyReLU(SLOPE, inplace=True),
            nn.Conv2d(inner, dim, 1),
        )
        self.linear = nn.Conv2d(dim, dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, H, W, C)."""
        return (self.conv(features) * self.linear(features)).permute(0, 2, 3, 1)


class PositionBias(nn.Module):
    """A bias for each head and each pair of a window's pixel and cell, computed by perceptrons from their offset.

    The published code looks up a bias for each pair of pixels and takes the mean over the pixels of a cell. The mean is
    over neighbouring offsets: here it is taken of the table of offsets, which is smaller by orders of magnitude.

    Args:
        dim: channels that a quarter of is computed in.
        num_heads: heads.
        window: height and width.
        cell: height and width of a cell in pixels.
    """

    index: Tensor

    def __init__(self, dim: int, num_heads: int, window: Sides, cell: Sides) -> None:
        super().__init__()
        inner = dim // 4
        self.pos_proj = nn.Linear(2, inner)
        self.pos1, self.pos2, self.pos3 = (
            nn.Sequential(nn.LayerNorm(inner), nn.ReLU(inplace=True), nn.Linear(inner, made))
            for made in (inner, inner, num_heads)
        )
        self.window, self.cell = window, cell
        self.register_buffer("index", _cell_index(window, cell), persistent=False)

    def forward(self) -> Tensor:
        """Return the biases (heads, L, M)."""
        weight = self.pos_proj.weight
        down, right = (torch.arange(1 - side, side, dtype=weight.dtype, device=weight.device) for side in self.window)
        offsets = torch.stack(torch.meshgrid(down, right, indexing="ij"), dim=-1)
        table = self.pos3(self.pos2(self.pos1(self.pos_proj(offsets)))).permute(2, 0, 1)
        means = F.avg_pool2d(table, self.cell, stride=1)
        return means.flatten(1)[:, self.index]


def _cell_index(window: Sides, cell: Sides) -> Tensor:
    """Number the mean offset between pixels and cells of a window: (L, M), integers.

    Offsets of a row r of pixels to the rows of a cell that begins at row a are r - a - cell + 1 to r - a. Their mean is
    entry r - a + window - cell of what a moving mean leaves of the 2 window - 1 offsets.
    """
    height, width = window
    down, right = (
        torch.arange(side)[:, None] - torch.arange(0, side, part)[None, :] + side - part
        for side, part in zip(window, cell, strict=True)
    )  # (pixels, cells) of a column and of a row
    means = 2 * width - cell[1]
    index = down[:, None, :, None] * means + right[None, :, None, :]  # (h, w, cells down, cells right)
    return index.reshape(height * width, -1)


class NeighbourContext(nn.Module):
    """What a window's neighbours show: each window summed up in half the channels, with attention among 2 x 2 of them.

    Each window attends once with those below and to the right, once with those above and to the left; the border is
    mirrored.

    References:
        H. Choi, J. Lee, J. Yang, "N-Gram in Swin Transformers", CVPR 2023, https://arxiv.org/abs/2211.11436.
    """

    def __init__(self, dim: int, window: Sides, num_heads: int) -> None:
        super().__init__()
        self.unigram_embed = nn.Conv2d(2, 1, window, stride=window)
        self.ngram_attn = WindowAttention(dim // 2, 2, num_heads, qkv_bias=True, attn_drop=0.0, drop=0.0)
        self.merge = nn.Conv2d(dim, dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, H, W, C) to (N, rows, columns, 1, C); there are two or more windows in each direction."""
        n, height, width, channels = features.shape
        pairs = features.permute(0, 3, 1, 2).reshape(n * channels // 2, 2, height, width)
        summed = self.unigram_embed(pairs)
        summed = summed.reshape(n, channels // 2, *summed.shape[2:])
        forward, backward = F.pad(summed, (0, 1, 0, 1), "reflect"), F.pad(summed, (1, 0, 1, 0), "reflect")
        both = torch.cat((self._attended(forward), self._attended(backward)), dim=-1)
        return self.merge(both.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).unsqueeze(3)

    def _attended(self, summed: Tensor) -> Tensor:
        """Map (N, C, rows + 1, columns + 1) to (N, rows, columns, C), the mean of attention among each 2 x 2."""
        corners = (summed[..., :-1, :-1], summed[..., :-1, 1:], summed[..., 1:, :-1], summed[..., 1:, 1:])
        tokens = torch.stack(corners, dim=-1).permute(0, 2, 3, 4, 1)
        return self.ngram_attn(tokens, None).mean(-2)


class Correlation(nn.Module):
    """Correlation of a window's pixels with its cells, and of its channels with each other."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window: Sides,
        base: Sides,
        sees_neighbours: bool,
        value_drop: float,
        drop: float,
    ) -> None:
        super().__init__()
        self.num_heads, self.window = num_heads, window
        self.cells = (min(window[0], base[0]), min(window[1], base[1]))
        self.cell = (window[0] // self.cells[0], window[1] // self.cells[1])
        self.qv = DualFeatures(dim)
        if sees_neighbours:
            context = NeighbourContext(dim, window, num_heads)
            self.ngram_window_partition = nn.ModuleDict({"ngram_context": context})
        self.spatial_linear = nn.Linear(self.cell[0] * self.cell[1], 1)
        self.pos = PositionBias(dim // 4, num_heads, window, self.cell)
        self.proj = nn.Linear(dim, dim)
        self.value_drop, self.proj_drop = nn.Dropout(value_drop), nn.Dropout(drop)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, H, W, C); H and W are multiples of the window, of two if it sees neighbours."""
        both = self.qv(features)
        windows = _cut(both, self.window)
        if hasattr(self, "ngram_window_partition"):
            windows = windows + self.ngram_window_partition["ngram_context"](both)
        query, value = windows.chunk(2, dim=-1)
        mixed = torch.cat((self._by_place(query, value), self._by_channel(query, value)), dim=-1)
        return self.proj_drop(self.proj(_join(mixed, self.window)))

    def _by_place(self, query: Tensor, value: Tensor) -> Tensor:
        """Map query and value (N, rows, columns, L, C / 2) to the same shape."""
        *where, pixels, channels = query.shape
        size = channels // self.num_heads
        query = query.reshape(*where, pixels, self.num_heads, size).transpose(-3, -2)
        down, right = self.cells
        cut = value.reshape(*where, down, self.cell[0], right, self.cell[1], channels)
        cut = cut.permute(0, 1, 2, 3, 5, 7, 4, 6).flatten(
            -2
        )  # (N, rows, columns, down, right, C / 2, pixels of a cell)
        cells = self.spatial_linear(cut).reshape(*where, down * right, self.num_heads, size).transpose(-3, -2)
        correlation = query @ cells.transpose(-2, -1) / size + self.pos()
        return (correlation @ self.value_drop(cells)).transpose(-3, -2).reshape(*where, pixels, channels)

    def _by_channel(self, query: Tensor, value: Tensor) -> Tensor:
        """Map query and value (N, rows, columns, L, C / 2) to the same shape."""
        correlation = query.transpose(-2, -1) @ value / query.shape[-2]
        return self.value_drop(value) @ correlation.transpose(-2, -1)


class LocalMlp(nn.Module):
    """Two linear layers with GELU between them, and a depthwise 5x5 convolution beside a shortcut."""

    def __init__(self, dim: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        depthwise = nn.Conv2d(hidden, hidden, 5, padding=2, groups=hidden)
        self.dwconv = nn.ModuleDict({"depthwise_conv": nn.Sequential(depthwise, nn.GELU())})
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, H, W, C) to the same shape."""
        wide = F.gelu(self.fc1(features))
        near = self.dwconv["depthwise_conv"](wide.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return self.drop(self.fc2(self.drop(wide + near)))


class HierarchicalBlock(nn.Module):
    """Correlations and a perceptron, each before a norm and beside a shortcut."""

    def __init__(self, correlation: Correlation, mlp: nn.Module, dim: int, multiple: Sides, drop_path: float) -> None:
        super().__init__()
        self.multiple = multiple
        self.norm1 = nn.LayerNorm(dim)
        self.correlation = correlation
        self.drop_path = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = mlp

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, H, W, C) to the same shape; sides that windows do not fit are mirrored until they do."""
        height, width = features.shape[1:3]
        padded = reflect_to_multiple(features.permute(0, 3, 1, 2), *self.multiple)
        correlated = self.correlation(padded)[:, :height, :width]
        features = features + self.drop_path(self.norm1(correlated))
        return features + self.drop_path(self.norm2(self.mlp(features)))


class BlockGroup(nn.Module):
    """Blocks in a row and a convolution, with a shortcut around all."""

    def __init__(self, blocks: Sequence[HierarchicalBlock], conv: nn.Module) -> None:
        super().__init__()
        self.residual_group = nn.ModuleDict({"blocks": nn.Sequential(*blocks)})
        self.conv = conv

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, H, W, C) to the same shape."""
        deep = self.residual_group["blocks"](features).permute(0, 3, 1, 2)
        return features + self.conv(deep).permute(0, 2, 3, 1)


@ARCHS.register("hit_srf")
class HiTSRF(SwinHead):
    """Hierarchical transformer: SwinIR's frame, windows that grow from block to block, and a local perceptron.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor.
        base_win_size: height and width of the window that ``hier_win_ratios`` multiply.
        img_range: factor of the centred input, undone at the output.
        depths: blocks in each group.
        embed_dim: channels of the blocks.
        num_heads: heads of the spatial correlations in each group; twice as many divide ``embed_dim``.
        mlp_ratio: hidden channels of the perceptrons, as a multiple of ``embed_dim``.
        resi_connection: convolution at the end of each group: ``1conv``, or ``3conv`` of fewer weights.
        hier_win_ratios: side of the windows in each block of a group, as multiples of ``base_win_size``.
        upsampler: head; see :class:`~.swinir_arch.SwinIR`.
        drop_rate: dropout of projections and perceptrons.
        value_drop_rate: dropout of what is correlated.
        drop_path_rate: how often the last block is left out for a sample in training; earlier blocks less often.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        X. Zhang, Y. Zhang, F. Yu, "HiT-SR", ECCV 2024, https://arxiv.org/abs/2407.05878, and its repository,
        https://github.com/XiangZ-0/HiT-SR.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of the base window; in the blocks of larger windows they are mirrored to fit."""
    mean: Tensor
    """What is subtracted from the input and added to the output; not part of checkpoints."""
    local_mlp = True
    """Whether perceptrons have a depthwise convolution."""
    sees_neighbours = False
    """Whether a window is told of its neighbours."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        base_win_size: Sequence[int] = (8, 8),
        img_range: float = 1.0,
        depths: Sequence[int] = (6, 6, 6, 6),
        embed_dim: int = 60,
        num_heads: Sequence[int] = (6, 6, 6, 6),
        mlp_ratio: float = 2.0,
        resi_connection: str = "1conv",
        hier_win_ratios: Sequence[float] = (0.5, 1, 2, 4, 6, 8),
        upsampler: str = "pixelshuffledirect",
        drop_rate: float = 0.0,
        value_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale, embed_dim=embed_dim)
        check_head(upsampler, scale, num_in_ch, num_out_ch)
        require_above_zero(img_range=img_range)
        require_expansion(embed_dim, mlp_ratio=mlp_ratio)
        require_choice("resi_connection", resi_connection, ("1conv", "3conv"))
        require_rates(drop_rate=drop_rate, value_drop_rate=value_drop_rate, drop_path_rate=drop_path_rate)
        _check_groups(embed_dim, depths, num_heads, len(hier_win_ratios))
        windows = _windows(base_win_size, hier_win_ratios)
        base = (base_win_size[0], base_win_size[1])
        self.num_in_ch = num_in_ch
        self.scale = scale
        largest_base = max(base)
        self.size_requirements = SizeRequirements(minimum=largest_base, multiple=largest_base)
        self.img_range = img_range
        self.upsampler = upsampler
        mean = RGB_MEAN if num_in_ch == num_out_ch == 3 else (0.0,)
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)

        self.conv_first = nn.Conv2d(num_in_ch, embed_dim, 3, padding=1)
        self.patch_embed = NormOnly(embed_dim)
        self.pos_drop = nn.Dropout(drop_rate)
        last_block = max(sum(depths) - 1, 1)
        rates = [drop_path_rate * index / last_block for index in range(sum(depths))]
        kind, hidden, step = LocalMlp if self.local_mlp else Mlp, int(embed_dim * mlp_ratio), 1 + self.sees_neighbours
        self.layers = nn.Sequential()
        for depth, heads in zip(depths, num_heads, strict=True):
            blocks = [
                HierarchicalBlock(
                    Correlation(embed_dim, heads, window, base, self.sees_neighbours, value_drop_rate, drop_rate),
                    kind(embed_dim, hidden, drop_rate),
                    embed_dim,
                    (step * window[0], step * window[1]),
                    rates.pop(0),
                )
                for window in windows[:depth]
            ]
            self.layers.append(BlockGroup(blocks, residual_conv(embed_dim, resi_connection)))
        self.norm = nn.LayerNorm(embed_dim)
        self.conv_after_body = residual_conv(embed_dim, resi_connection)
        self.add_head(embed_dim, num_out_ch)
        self.apply(_initialise)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        centred = (image - self.mean) * self.img_range
        shallow = self.conv_first(centred)
        features = self.layers(self.pos_drop(self.patch_embed(shallow.permute(0, 2, 3, 1))))
        deep = self.conv_after_body(self.norm(features).permute(0, 3, 1, 2)) + shallow
        return self.enlarge(deep, centred) / self.img_range + self.mean


@ARCHS.register("hit_sir")
class HiTSIR(HiTSRF):
    """Hierarchical transformer after SwinIR, with plain perceptrons; see :class:`HiTSRF` for the arguments."""

    local_mlp = False


@ARCHS.register("hit_sng")
class HiTSNG(HiTSRF):
    """Hierarchical transformer after SwinIR-NG, whose windows see neighbours; see :class:`HiTSRF` for the arguments."""

    local_mlp = False
    sees_neighbours = True


def _cut(features: Tensor, window: Sides) -> Tensor:
    """Cut (N, H, W, C) into windows: (N, rows, columns, L, C)."""
    n, height, width, channels = features.shape
    rows, columns = height // window[0], width // window[1]
    cut = features.reshape(n, rows, window[0], columns, window[1], channels)
    return cut.transpose(2, 3).reshape(n, rows, columns, window[0] * window[1], channels)


def _join(windows: Tensor, window: Sides) -> Tensor:
    """Put windows (N, rows, columns, L, C) together again: (N, H, W, C)."""
    n, rows, columns, _, channels = windows.shape
    cut = windows.reshape(n, rows, columns, *window, channels)
    return cut.transpose(2, 3).reshape(n, rows * window[0], columns * window[1], channels)


def _initialise(module: nn.Module) -> None:
    """Initialise linear layers as published; convolutions and norms keep PyTorch's initialisation."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=INITIAL_STD)
        nn.init.zeros_(module.bias)


def _windows(base: Sequence[int], ratios: Sequence[float]) -> list[Sides]:
    """Return the windows of the blocks of a group, or refuse what gives none."""
    if not isinstance(base, list | tuple) or len(base) != 2:
        raise ValueError(f"base_win_size must be two whole numbers, height and width, got {base!r}")
    require_positive_integers(**{f"base_win_size[{index}]": side for index, side in enumerate(base)})
    require_numbers("hier_win_ratios", ratios)
    windows = [(int(base[0] * ratio), int(base[1] * ratio)) for ratio in ratios]
    for ratio, window in zip(ratios, windows, strict=True):
        if min(window) < 1 or any(side > least and side % least for side, least in zip(window, base, strict=True)):
            raise ValueError(
                f"hier_win_ratios must give windows of at least a pixel, and larger ones that are multiples of "
                f"base_win_size; {ratio} gives {window[0]} x {window[1]}"
            )
    return windows


def _check_groups(embed_dim: int, depths: Sequence[int], num_heads: Sequence[int], deepest: int) -> None:
    if embed_dim < NARROWEST:
        raise ValueError(f"embed_dim must be at least {NARROWEST}, got {embed_dim}")
    for name, values in (("depths", depths), ("num_heads", num_heads)):
        require_numbers(name, values)
        require_positive_integers(**{f"{name}[{index}]": value for index, value in enumerate(values)})
    if len(depths) != len(num_heads):
        raise ValueError(
            f"depths and num_heads must have one entry for each group of blocks, got {len(depths)} and {len(num_heads)}"
        )
    if max(depths) > deepest:
        raise ValueError(f"depths must be at most {deepest}, the windows of hier_win_ratios; got {max(depths)}")
    for heads in num_heads:
        if embed_dim % (2 * heads):
            raise ValueError(f"twice num_heads must divide embed_dim ({embed_dim}), which {heads} does not")
