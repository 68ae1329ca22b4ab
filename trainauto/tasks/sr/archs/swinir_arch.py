"""SwinIR: image restoration with attention in shifted windows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import (
    require_above_zero,
    require_choice,
    require_expansion,
    require_positive_integers,
    require_rates,
)
from trainauto.tasks.sr.archs.padding import pad_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.rgb_mean import RGB_MEAN
from trainauto.tasks.sr.archs.swin_block import RSTB, BlockGroup, NormOnly, SwinBlock, initialise_linear, shift_mask
from trainauto.tasks.sr.archs.swin_head import SwinHead, check_head, residual_conv


@ARCHS.register("swinir", "swinir_m")
class SwinIR(SwinHead):
    """Residual groups of Swin blocks between two convolutions; defaults are those of the middle size (SwinIR-M).

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor.
        img_size: side of the crops a checkpoint was trained on. It only decides the shape of the ``attn_mask`` entries
            of the state dict; images of any size can be run.
        embed_dim: channels of the blocks.
        depths: Swin blocks in each group.
        num_heads: attention heads in each group.
        window_size: side of the attention windows in pixels.
        mlp_ratio: hidden channels of the perceptrons, as a multiple of ``embed_dim``.
        qkv_bias: whether queries, keys and values have a bias.
        drop_rate: dropout of projections and perceptrons.
        attn_drop_rate: dropout of attention.
        drop_path_rate: how often the last block is left out for a sample in training; earlier blocks less often.
        img_range: factor of the centred input, undone at the output.
        upsampler: ``pixelshuffle`` (classical; scales 1, 2, 3, 4, 8, 16), ``pixelshuffledirect`` (lightweight; any
            scale), ``nearest+conv`` (real images; scales 2, 4, 8) or an empty text (denoising; scale 1).
        resi_connection: convolution at the end of each group: ``1conv``, or ``3conv`` of fewer weights.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        J. Liang et al., "SwinIR", ICCVW 2021, https://arxiv.org/abs/2108.10257.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Sides are multiples of the window; others are padded, which costs as much as the next multiple."""
    mean: Tensor
    """What is subtracted from the input and added to the output; not part of checkpoints."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        img_size: int = 64,
        embed_dim: int = 180,
        depths: Sequence[int] = (6, 6, 6, 6, 6, 6),
        num_heads: Sequence[int] = (6, 6, 6, 6, 6, 6),
        window_size: int = 8,
        mlp_ratio: float = 2.0,
        qkv_bias: bool = True,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.1,
        img_range: float = 1.0,
        upsampler: str = "pixelshuffle",
        resi_connection: str = "1conv",
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale)
        check_head(upsampler, scale, num_in_ch, num_out_ch)
        check_windows(window_size, img_size)
        check_blocks(embed_dim, depths, num_heads)
        require_above_zero(img_range=img_range)
        require_expansion(embed_dim, mlp_ratio=mlp_ratio)
        require_rates(drop_rate=drop_rate, attn_drop_rate=attn_drop_rate, drop_path_rate=drop_path_rate)
        require_choice("resi_connection", resi_connection, ("1conv", "3conv"))
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements(minimum=window_size, multiple=window_size)
        self.window_size = window_size
        self.shift = window_size // 2
        self.img_range = img_range
        self.upsampler = upsampler
        mean = RGB_MEAN if num_in_ch == num_out_ch == 3 else (0.0,)
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)

        self.conv_first = nn.Conv2d(num_in_ch, embed_dim, 3, padding=1)
        self.patch_embed = NormOnly(embed_dim)
        self.pos_drop = nn.Dropout(drop_rate)
        self.shifted = max(depths) > 1 and self.shift > 0
        last_block = max(sum(depths) - 1, 1)
        rates = [drop_path_rate * index / last_block for index in range(sum(depths))]
        self.layers = nn.ModuleList()
        for depth, heads in zip(depths, num_heads, strict=True):
            blocks = [
                self._block(
                    len(self.layers),
                    index,
                    dim=embed_dim,
                    num_heads=heads,
                    window_size=window_size,
                    img_size=img_size,
                    mlp_ratio=mlp_ratio,
                    qkv_bias=qkv_bias,
                    drop=drop_rate,
                    attn_drop=attn_drop_rate,
                    drop_path=rates.pop(0),
                )
                for index in range(depth)
            ]
            self.layers.append(RSTB(BlockGroup(blocks), residual_conv(embed_dim, resi_connection)))
        self.norm = nn.LayerNorm(embed_dim)
        self.conv_after_body = residual_conv(embed_dim, resi_connection)
        self.add_head(embed_dim, num_out_ch)
        self.apply(initialise_linear)

    def _block(self, group: int, index: int, **arguments: Any) -> SwinBlock:
        """Return a block of a group: every second one is shifted."""
        del group  # networks built upon this one tell groups apart
        return SwinBlock(shift=self.shift if index % 2 else 0, **arguments)

    def _padded(self, image: Tensor) -> Tensor:
        """Return an image (N, C, H, W) whose sides windows divide."""
        return pad_to_multiple(image, self.window_size)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        height, width = image.shape[-2:]
        centred = (self._padded(image) - self.mean) * self.img_range
        shallow = self.conv_first(centred)
        deep = self.conv_after_body(self._deep_features(shallow)) + shallow
        enlarged = self.enlarge(deep, centred) / self.img_range + self.mean
        return enlarged[..., : height * self.scale, : width * self.scale]

    def _deep_features(self, shallow: Tensor) -> Tensor:
        """Run the blocks: (N, C, H, W) to the same shape, H and W multiples of the window."""
        mask = None
        if self.shifted:
            # Computed here and not cached: it costs little beside the attention, and a cache would have to know of
            # sizes, devices, dtypes, fake tensors, compiled graphs and inference mode.
            height, width = shallow.shape[-2:]
            mask = shift_mask(height, width, self.window_size, self.shift, like=self.norm.weight)
        features = self.pos_drop(self.patch_embed(shallow.permute(0, 2, 3, 1)))
        for layer in self.layers:
            features = layer(features, mask)
        return self.norm(features).permute(0, 3, 1, 2)


def check_windows(window_size: int, img_size: int) -> None:
    """Refuse crops that windows do not divide.

    Raises:
        ValueError: naming the argument and what would do.
    """
    require_positive_integers(window_size=window_size, img_size=img_size)
    if img_size <= window_size or img_size % window_size:
        raise ValueError(
            f"img_size must be a multiple of window_size and larger than it, such as {8 * window_size} for windows of "
            f"{window_size}; got {img_size}"
        )


def check_blocks(embed_dim: int, depths: Sequence[int], num_heads: Sequence[int]) -> None:
    """Refuse groups of blocks that have no depth or no heads, or heads that do not divide the channels.

    Raises:
        ValueError: naming the argument and what it was given.
    """
    require_positive_integers(embed_dim=embed_dim)
    for name, values in (("depths", depths), ("num_heads", num_heads)):
        if not isinstance(values, list | tuple) or not values:
            raise ValueError(f"{name} must list one whole number for each group of blocks, got {values!r}")
        for index, value in enumerate(values):
            require_positive_integers(**{f"{name}[{index}]": value})
    if len(depths) != len(num_heads):
        raise ValueError(
            f"depths and num_heads must have one entry for each group of blocks, got {len(depths)} and {len(num_heads)}"
        )
    for heads in num_heads:
        if embed_dim % heads:
            divisors = [count for count in range(1, min(embed_dim, 32) + 1) if embed_dim % count == 0]
            raise ValueError(
                f"num_heads must divide embed_dim ({embed_dim}): {', '.join(map(str, divisors))} do, {heads} does not"
            )


register_preset(
    SwinIR,
    "swinir_light",
    "swinir_s",
    about="The published lightweight SwinIR",
    embed_dim=60,
    depths=(6, 6, 6, 6),
    num_heads=(6, 6, 6, 6),
    upsampler="pixelshuffledirect",
)
register_preset(
    SwinIR,
    "swinir_l",
    about="The published large SwinIR for real images",
    embed_dim=240,
    depths=(6, 6, 6, 6, 6, 6, 6, 6, 6),
    num_heads=(8, 8, 8, 8, 8, 8, 8, 8, 8),
    upsampler="nearest+conv",
    resi_connection="3conv",
)
