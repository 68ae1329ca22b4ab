"""Weights of DWT, which have the names and shapes of SwinIR's; the masks in their files tell them apart."""

from collections.abc import Mapping

import torch
from torch import Tensor

from trainauto.tasks.sr.archs.dwt_arch import KINDS, SHIFTED, mask_of_parts
from trainauto.tasks.sr.archs.swin_block import shift_mask
from trainauto.tasks.sr.recognition.rules import Guess, _swinir

_MASK = "layers.{}.residual_group.blocks.1.attn_mask"
UNSURE = "layer_kinds -1 and 1 have the same weights and masks"


def of_dilated_windows(state: Mapping[str, Tensor]) -> Guess | None:
    """Return what weights of DWT are of; ``None`` of all others, and where masks hold no data.

    Args:
        state: weights by name.
    """
    guess = _swinir({name: tuple(value.shape) for name, value in state.items()})
    if guess is None or guess.arguments["upsampler"] != "pixelshuffle":
        return None
    arguments = {key: value for key, value in guess.arguments.items() if key != "img_range"}
    side, window, depths = arguments["img_size"], arguments["window_size"], arguments["depths"]
    parts = [_parts(state.get(_MASK.format(group)), side, window) for group in range(len(depths))]
    if max(parts) < 2:
        return None
    if parts != [max(kinds[1], 1) for kinds in KINDS]:
        kinds = [count if count > 1 else SHIFTED for count in parts]
        arguments["layer_kinds"] = [
            [kind if index % 2 else 0 for index in range(depth)] for kind, depth in zip(kinds, depths, strict=True)
        ]
    return Guess("DWT", ("dwt", "dwt_s"), guess.scale, guess.sizes, arguments, UNSURE)


def _parts(mask: Tensor | None, img_size: int, window_size: int) -> int:
    """Return over how many parts, along each side of a crop, windows of this mask are dilated; 1 where they are not."""
    if mask is None or mask.is_meta or img_size % window_size or window_size < 2:
        return 1
    plain = shift_mask(img_size, img_size, window_size, window_size // 2)
    if plain.numel() != mask.numel() or torch.equal(plain.reshape(mask.shape), mask.float()):
        return 1
    able = (count for count in range(2, img_size // window_size + 1) if img_size % (window_size * count) == 0)
    return next((count for count in able if torch.equal(mask_of_parts(plain, count).view_as(mask), mask.float())), 1)
