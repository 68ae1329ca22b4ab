"""DWT: SwinIR's network with windows that are dilated, so that their pixels lie far apart."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_choice, require_numbers
from trainauto.tasks.sr.archs.padding import reflect_to_multiple
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset
from trainauto.tasks.sr.archs.swin_block import SwinBlock, shift_mask
from trainauto.tasks.sr.archs.swinir_arch import SwinIR, check_blocks, check_windows

SHIFTED = -1
"""Kind of a block whose windows are shifted and not dilated, as SwinIR's are."""
KINDS = (
    (0, SHIFTED, 0, SHIFTED, 0, SHIFTED),
    (0, SHIFTED, 0, SHIFTED, 0, SHIFTED),
    (0, 2, 0, 2, 0, 2),
    (0, 2, 0, 2, 0, 2),
    (0, 1, 0, 1, 0, 1),
    (0, 1, 0, 1, 0, 1),
)


def to_dilated_windows(features: Tensor, window_size: int, parts: int) -> Tensor:
    """Take windows (N, P, W, L, C) from (N, H, W, C), whose pixels are spread over a part of the image each.

    Args:
        features: sides are multiples of ``window_size`` * ``parts``.
        window_size: pixels along each side of a window, L = window_size ** 2 of them in all.
        parts: parts along each side of the image, P = parts ** 2 of them; each has W windows.
    """
    n, height, width, channels = features.shape
    rows, columns = height // window_size // parts, width // window_size // parts
    cut = features.reshape(n, parts, window_size, rows, parts, window_size, columns, channels)
    return cut.permute(0, 1, 4, 3, 6, 2, 5, 7).reshape(n, parts**2, rows * columns, window_size**2, channels)


def from_dilated_windows(windows: Tensor, height: int, width: int, window_size: int, parts: int) -> Tensor:
    """Put windows of :func:`to_dilated_windows` together again: (N, height, width, C)."""
    n, channels = windows.shape[0], windows.shape[-1]
    rows, columns = height // window_size // parts, width // window_size // parts
    cut = windows.reshape(n, parts, parts, rows, columns, window_size, window_size, channels)
    return cut.permute(0, 1, 5, 3, 2, 6, 4, 7).reshape(n, height, width, channels)


def mask_of_parts(mask: Tensor, parts: int) -> Tensor:
    """Order the mask of shifted windows (rows, columns, 1, L, L) by parts of the image: (P, W, 1, L, L).

    The published code masks dilated windows as if they were not dilated. Weights are trained with that.
    """
    rows, columns, *rest = mask.shape
    cut = mask.reshape(parts, rows // parts, parts, columns // parts, *rest)
    return cut.transpose(1, 2).reshape(parts**2, rows * columns // parts**2, *rest)


class DilatedBlock(SwinBlock):
    """A shifted Swin block whose windows are dilated over each of some parts of the image."""

    def __init__(self, parts: int, img_size: int, **arguments: int | float | bool) -> None:
        super().__init__(img_size=img_size, **arguments)  # type: ignore[arg-type]
        self.parts = parts
        mask = mask_of_parts(shift_mask(img_size, img_size, self.window_size, self.shift), parts)
        self.attn_mask = mask.reshape(self.attn_mask.shape)

    def _attend(self, features: Tensor, mask: Tensor | None) -> Tensor:
        height, width = features.shape[1:3]
        shifted = features.roll((-self.shift, -self.shift), (1, 2))
        windows = to_dilated_windows(shifted, self.window_size, self.parts)
        attended = self.attn(windows, None if mask is None else mask_of_parts(mask, self.parts))
        joined = from_dilated_windows(attended, height, width, self.window_size, self.parts)
        return joined.roll((self.shift, self.shift), (1, 2))


@ARCHS.register("dwt")
class DWT(SwinIR):
    """Dilated window transformer: residual groups of Swin blocks, every second of which may be dilated.

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor: 1, 2, 3, 4, 8 or 16.
        img_size: side of the crops a checkpoint was trained on. It only decides the shape of the ``attn_mask`` entries
            of the state dict; images of any size can be run.
        embed_dim: channels of the blocks.
        depths: blocks in each group.
        num_heads: attention heads in each group.
        window_size: pixels along each side of the attention windows.
        mlp_ratio: hidden channels of the perceptrons, as a multiple of ``embed_dim``.
        qkv_bias: whether queries, keys and values have a bias.
        drop_rate: dropout of projections and perceptrons.
        attn_drop_rate: dropout of attention.
        drop_path_rate: how often the last block is left out for a sample in training; earlier blocks less often.
        img_range: factor of the centred input, undone at the output.
        upsampler: ``pixelshuffle``, the only one that the published code runs.
        resi_connection: convolution at the end of each group: ``1conv``, or ``3conv`` of fewer weights.
        layer_kinds: kinds of the blocks of each group. Every first, third and so on is 0. The blocks between are
            shifted (-1), or dilated over parts of the image, so many of them along each side. Files do not tell them.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        S. Park, Y. S. Choi, "Image Super-Resolution Using Dilated Window Transformer", IEEE Access 2023, as in
        https://github.com/the-database/traiNNer-redux.
    """

    size_requirements: SizeRequirements
    """Sides are even multiples of the window, or multiples of all parts; others are padded."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        img_size: int = 64,
        embed_dim: int = 180,
        depths: Sequence[int] = (6, 6, 6, 6, 6, 6),
        num_heads: Sequence[int] = (6, 6, 6, 6, 6, 6),
        window_size: int = 16,
        mlp_ratio: float = 2.0,
        qkv_bias: bool = True,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.1,
        img_range: float = 1.0,
        upsampler: str = "pixelshuffle",
        resi_connection: str = "1conv",
        layer_kinds: Sequence[Sequence[int]] = KINDS,
    ) -> None:
        require_choice("upsampler", upsampler, ("pixelshuffle",))
        check_windows(window_size, img_size)
        check_blocks(embed_dim, depths, num_heads)
        _check_kinds(layer_kinds, depths, window_size, img_size)
        self.layer_kinds = layer_kinds  # blocks are made of them
        super().__init__(
            num_in_ch,
            num_out_ch,
            scale,
            img_size,
            embed_dim,
            depths,
            num_heads,
            window_size,
            mlp_ratio,
            qkv_bias,
            drop_rate,
            attn_drop_rate,
            drop_path_rate,
            img_range,
            upsampler,
            resi_connection,
        )
        self.shifted = True  # the published code has a mask for all blocks
        parts = [max(kind, 1) for kinds in layer_kinds for kind in kinds]
        self.multiple = window_size * math.lcm(2, *parts)
        self.size_requirements = SizeRequirements(minimum=self.multiple, multiple=self.multiple)

    def _block(self, group: int, index: int, **arguments: Any) -> SwinBlock:
        kind = self.layer_kinds[group][index]
        if kind > 0:
            return DilatedBlock(kind, shift=self.shift, **arguments)
        return SwinBlock(shift=self.shift if kind == SHIFTED else 0, **arguments)

    def _padded(self, image: Tensor) -> Tensor:
        return reflect_to_multiple(image, self.multiple)


def _check_kinds(kinds: Sequence[Sequence[int]], depths: Sequence[int], window_size: int, img_size: int) -> None:
    if window_size < 2:
        raise ValueError("window_size must be at least 2, because windows are shifted by half of it; got 1")
    if not isinstance(kinds, list | tuple) or len(kinds) != len(depths):
        raise ValueError(
            f"layer_kinds must have one list for each of the {len(depths)} groups of blocks, got {kinds!r}"
        )
    for index, (group, depth) in enumerate(zip(kinds, depths, strict=True)):
        name = f"layer_kinds[{index}]"
        require_numbers(name, group)
        if len(group) < depth:
            raise ValueError(f"{name} must have one kind for each of the {depth} blocks, got {len(group)}")
        for place, kind in enumerate(group):
            fits = kind == 0 if place % 2 == 0 else kind == SHIFTED or (isinstance(kind, int) and kind > 0)
            if not fits:
                raise ValueError(f"{name} must be 0 at every first place of two, then -1 or above 0; got {list(group)}")
            if kind > 0 and img_size % (window_size * kind):
                raise ValueError(
                    f"img_size must be a multiple of window_size times each kind of layer_kinds, here {window_size} "
                    f"times {kind}; got {img_size}"
                )


register_preset(DWT, "dwt_s", about="The small DWT, of smaller windows", window_size=8)
