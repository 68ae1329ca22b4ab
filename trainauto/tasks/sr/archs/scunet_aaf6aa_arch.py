"""SCUNet by aaf6aa: SCUNet's U-net of convolutions beside shifted windows, with enlargement behind it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_choice,
    require_counts,
    require_finite,
    require_positive_integers,
    require_rates,
)
from trainauto.tasks.sr.archs.padding import reflect_sides
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.rrdbnet_arch import RRDB
from trainauto.tasks.sr.archs.swin_block import (
    INITIAL_STD,
    DropPath,
    from_windows,
    relative_position_index,
    shift_mask,
    to_windows,
)
from trainauto.tasks.sr.archs.uni_upsample import Nearest

WINDOW, LEVELS = 8, 3
MULTIPLE = WINDOW * 2**LEVELS
"""Sides whose lowest resolution can be cut into windows."""
MARGIN = 64
"""Pixels by which each side of an image is longer in evaluation, half of them at either end."""
STAGES = 2 * LEVELS + 1
EXPANSION, SLOPE = 4, 0.2
HEAD_BLOCKS, HEAD_GROWTH = 2, 32
SCALES = (1, 2, 4, 8)
NOISE_STD = 0.05


class WindowAttention(nn.Module):
    """Multi-head attention in windows, with a learned bias for every offset between two pixels."""

    index: Tensor

    def __init__(self, dim: int, head_dim: int, shift: int) -> None:
        super().__init__()
        self.heads, self.shift = dim // head_dim, shift
        self.scale = head_dim**-0.5
        self.embedding_layer = nn.Linear(dim, 3 * dim)
        side = 2 * WINDOW - 1
        self.relative_position_params = nn.Parameter(INITIAL_STD * torch.randn(self.heads, side, side))
        self.linear = nn.Linear(dim, dim)
        self.register_buffer("index", relative_position_index(WINDOW), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, H, W, C), H and W multiples of the window, to the same shape."""
        bias = self.relative_position_params.flatten(1)[:, self.index]
        if self.shift:
            height, width = features.shape[1:3]
            features = features.roll((-self.shift, -self.shift), (1, 2))
            bias = bias + shift_mask(height, width, WINDOW, self.shift, like=bias)
        windows = to_windows(features, WINDOW)
        *where, channels = windows.shape
        parts = self.embedding_layer(windows).reshape(*where, 3, self.heads, channels // self.heads)
        query, key, value = parts.permute(4, 0, 1, 2, 5, 3, 6)  # each (N, rows, columns, heads, L, C / heads)
        attention = (query @ key.transpose(-2, -1) * self.scale + bias).softmax(-1)
        mixed = (attention @ value).transpose(-3, -2).reshape(*where, channels)
        joined = from_windows(self.linear(mixed), WINDOW)
        return joined.roll((self.shift, self.shift), (1, 2)) if self.shift else joined


class WindowBlock(nn.Module):
    """Window attention and a perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, dim: int, head_dim: int, shift: int, drop_path: float) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.msa = WindowAttention(dim, head_dim, shift)
        self.mlp = nn.Sequential(nn.Linear(dim, EXPANSION * dim), nn.GELU(), nn.Linear(EXPANSION * dim, dim))
        self.drop_path = DropPath(drop_path)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, H, W, C), H and W multiples of the window, to the same shape."""
        features = features + self.drop_path(self.msa(self.ln1(features)))
        return features + self.drop_path(self.mlp(self.ln2(features)))


class ConvWindowBlock(nn.Module):
    """Half of the channels are convolved and the others attended to; noise is added to the result in training."""

    def __init__(self, channels: int, head_dim: int, shift: int, drop_path: float, noise: float) -> None:
        super().__init__()
        half = channels // 2
        self.noise = noise
        self.trans_block = WindowBlock(half, head_dim, shift, drop_path)
        self.conv1_1 = nn.Conv2d(channels, channels, 1)
        self.conv1_2 = nn.Conv2d(channels, channels, 1)
        self.conv_block = nn.Sequential(
            nn.Conv2d(half, half, 3, padding=1, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, padding=1, bias=False),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W), H and W multiples of the window, to the same shape."""
        convolved, attended = self.conv1_1(features).chunk(2, dim=1)
        convolved = self.conv_block(convolved) + convolved
        attended = self.trans_block(attended.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        features = features + self.conv1_2(torch.cat((convolved, attended), dim=1))
        if self.training and self.noise:
            features = features + self.noise * torch.randn_like(features)
        return features


class NearestConvs(nn.Module):
    """Features enlarged by nearest pixels and convolutions, twice or more often; blocks may come first."""

    def __init__(self, channels: int, made: int, scale: int, blocks: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        layers = [*blocks]
        for _ in range(scale.bit_length() - 1):
            layers += [Nearest(2), nn.Conv2d(channels, channels, 3, padding=1), nn.LeakyReLU(SLOPE, inplace=True)]
        layers += [nn.Conv2d(channels, made, 3, padding=1), nn.LeakyReLU(SLOPE, inplace=True)]
        self.up = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, made, H * scale, W * scale)."""
        return self.up(features)


@ARCHS.register("scunet_aaf6aa")
class SCUNetAaf6aa(nn.Module):
    """SCUNet as aaf6aa extended it: it enlarges, and noise is added within its blocks in training.

    In evaluation, images are mirrored by 32 pixels or more at each edge, as published; in training, up to the next
    multiple of 64.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor: 1, 2, 4 or 8.
        config: blocks at each of seven stages: three down, one at the lowest resolution, three up.
        dim: channels at the resolution of the input, a multiple of twice ``head_dim``; each level has twice as many.
        drop_path_rate: how often the last block is left out for a sample in training; earlier blocks less often.
        input_resolution: side of the crops that the network was designed for. Blocks that see no more than a window of
            such a crop are not shifted. Files do not tell it.
        residual: convolve the features of the first layer before the others are added to them.
        head_dim: channels of an attention head.
        noise: standard deviation of the noise that each block adds to its features in training.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        K. Zhang et al., "Practical Blind Image Denoising via Swin-Conv-UNet and Data Synthesis",
        https://arxiv.org/abs/2203.13278; https://github.com/aaf6aa/SCUNet, as in
        https://github.com/the-database/traiNNer-redux.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of 64, the window at an eighth of the resolution; others are padded."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        config: Sequence[int] = (2, 2, 2, 2, 2, 2, 2),
        dim: int = 64,
        drop_path_rate: float = 0.0,
        input_resolution: int = 256,
        residual: bool = True,
        head_dim: int = 32,
        noise: float = NOISE_STD,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, dim=dim, head_dim=head_dim)
        require_positive_integers(input_resolution=input_resolution)
        require_choice("scale", scale, SCALES)
        require_rates(drop_path_rate=drop_path_rate)
        _check_sizes(config, dim, head_dim, noise)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements(minimum=MULTIPLE, multiple=MULTIPLE)
        last, placed = max(sum(config) - 1, 1), iter(range(sum(config)))

        def blocks(stage: int) -> list[nn.Module]:
            level = min(stage, STAGES - 1 - stage)
            shift = WINDOW // 2 if input_resolution // 2**level > WINDOW else 0
            return [
                ConvWindowBlock(
                    dim * 2**level,
                    head_dim,
                    shift if index % 2 else 0,
                    drop_path_rate * next(placed) / last,
                    noise,
                )
                for index in range(config[stage])
            ]

        def up(channels: int) -> nn.Module:
            if scale > 1:
                return NearestConvs(channels, channels // 2, 2)
            return nn.ConvTranspose2d(channels, channels // 2, 2, stride=2, bias=False)

        self.m_head = nn.Sequential(nn.Conv2d(num_in_ch, dim, 3, padding=1, bias=False))
        for level in range(LEVELS):
            channels = dim * 2**level
            down = nn.Conv2d(channels, 2 * channels, 2, stride=2, bias=False)
            self.add_module(f"m_down{level + 1}", nn.Sequential(*blocks(level), down))
        self.m_body = nn.Sequential(*blocks(LEVELS))
        for level in reversed(range(LEVELS)):
            stage = nn.Sequential(up(dim * 2 ** (level + 1)), *blocks(STAGES - 1 - level))
            self.add_module(f"m_up{level + 1}", stage)
        self.m_res = nn.Sequential(nn.Conv2d(dim, dim, 3, padding=1, bias=False)) if residual else nn.Sequential()
        head = [RRDB(dim, HEAD_GROWTH) for _ in range(HEAD_BLOCKS)]
        self.m_upsample = nn.Sequential(NearestConvs(dim, dim, scale, head)) if scale > 1 else nn.Sequential()
        self.m_tail = nn.Sequential(nn.Conv2d(dim, num_out_ch, 3, padding=1, bias=False))

    @property
    def checkpoint_blocks(self) -> tuple[nn.Module, ...]:
        """What gradient checkpointing runs again: the blocks of all stages."""
        return tuple(module for module in self.modules() if isinstance(module, ConvWindowBlock | RRDB))

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        margin = 0 if self.training else MARGIN
        missing = [(side + MULTIPLE - 1) // MULTIPLE * MULTIPLE - side + margin for side in (height, width)]
        top, left = ((count + 1) // 2 for count in missing)
        padded = reflect_sides(image, (top, missing[0] - top), (left, missing[1] - left))
        shallow = features = self.m_head(padded)
        seen = []
        for level in range(LEVELS):
            features = self.get_submodule(f"m_down{level + 1}")(features)
            seen.append(features)
        features = self.m_body(features)
        for level in reversed(range(LEVELS)):
            features = self.get_submodule(f"m_up{level + 1}")(features + seen[level])
        enlarged = self.m_tail(self.m_upsample(features + self.m_res(shallow)))
        top, left = top * self.scale, left * self.scale
        return enlarged[..., top : top + height * self.scale, left : left + width * self.scale]


def _check_sizes(config: Sequence[int], dim: int, head_dim: int, noise: float) -> None:
    require_counts("config", config)
    if len(config) != STAGES:
        raise ValueError(f"config must have {STAGES} entries, three down, one below and three up; got {len(config)}")
    if dim % (2 * head_dim):
        raise ValueError(f"dim must be a multiple of twice head_dim ({head_dim}), got {dim}")
    require_finite(noise=noise)
    if noise < 0:
        raise ValueError(f"noise must be at least 0, got {noise!r}")
