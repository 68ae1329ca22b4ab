"""The heads of several community networks: one of a list by name, a chain of layers from features to the output."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.tasks.sr.archs.argument_checks import require_choice, require_positive_integers
from trainauto.tasks.sr.archs.dysample import GROUPS, DySample

NUMBERED = (
    "conv",
    "pixelshuffledirect",
    "pixelshuffle",
    "nearest+conv",
    "dysample",
    "transpose+conv",
    "lda",
    "pa_up",
)
"""Heads as published files number them; ``lda`` (LDA-AQU) is not offered here."""
FIRST_HEADS = NUMBERED[:5]
"""Those of the first version."""
HEADS = tuple(name for name in NUMBERED if name != "lda")
_TRANSPOSED = {2: (4, 2, 1), 3: (3, 3, 0), 4: (4, 2, 1)}
"""Kernel, stride and padding of transposed convolutions by scale; scale 4 has two of them."""
SLOPE, SLOPE_BEFORE = 0.2, 0.01


class PixelAttention(nn.Module):
    """Features weighed by the sigmoid of a 1x1 convolution of themselves."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.Sigmoid())

    def forward(self, features: Tensor) -> Tensor:
        return features * self.conv(features)


class Nearest(nn.Module):
    """Enlargement by repeated pixels."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        return F.interpolate(features, scale_factor=self.scale, mode="nearest")


class UniUpsample(nn.Sequential):
    """A head by name.

    Args:
        upsampler: one of :data:`HEADS`.
        scale: enlargement factor; 1 leaves a convolution of any head.
        in_dim: channels of the features.
        out_dim: channels of the output.
        mid_dim: channels in between, of the heads that have such.
        version: 3, or 1, whose ``dysample`` has no convolution before it and whose heads are :data:`FIRST_HEADS`.

    Raises:
        ValueError: an argument is out of its range or does not go with another.

    References:
        ``UniUpsample`` and ``UniUpsampleV3`` of https://github.com/umzi2/UniUpsample. Files name the head by numbers in
        ``MetaUpsample``; they follow from the arguments, and those of a file are not taken over.
    """

    MetaUpsample: Tensor

    def __init__(self, upsampler: str, scale: int, in_dim: int, out_dim: int, mid_dim: int, version: int = 3) -> None:
        require_choice("upsampler", upsampler, HEADS if version == 3 else FIRST_HEADS)
        require_positive_integers(mid_dim=mid_dim)
        check_scale(upsampler, scale)
        has_middle = upsampler == "pa_up" and scale > 1
        super().__init__(*_layers(upsampler, scale, in_dim, out_dim, mid_dim, version))
        facts = (version, NUMBERED.index(upsampler), scale, mid_dim if has_middle else in_dim, out_dim, mid_dim, GROUPS)
        self.register_buffer("MetaUpsample", torch.tensor([fact % 256 for fact in facts], dtype=torch.uint8))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict[prefix + "MetaUpsample"] = self.MetaUpsample
        super()._load_from_state_dict(state_dict, prefix, *args)


def check_scale(upsampler: str, scale: int) -> None:
    """Refuse a scale that a head does not do.

    Raises:
        ValueError: naming the head and the scale.
    """
    if upsampler == "conv" and scale != 1:
        raise ValueError(f"upsampler 'conv' enlarges nothing: it goes with scale 1, not {scale}")
    if upsampler == "transpose+conv" and scale not in (1, *_TRANSPOSED):
        raise ValueError(f"upsampler 'transpose+conv' does scales 1, 2, 3, 4, not {scale}")
    if upsampler in ("pixelshuffle", "nearest+conv", "pa_up") and scale != 3 and scale & (scale - 1):
        raise ValueError(
            f"upsampler {upsampler!r} does scale 3 and powers of 2, not {scale}; 'pixelshuffledirect' does any"
        )


def _layers(upsampler: str, scale: int, given: int, made: int, middle: int, version: int) -> Iterator[nn.Module]:
    """Yield the layers of a head, at the places where published files have them."""
    if scale == 1:
        yield _conv(given, made)
    elif upsampler == "pixelshuffledirect":
        yield from (_conv(given, made * scale**2), nn.PixelShuffle(scale))
    elif upsampler == "transpose+conv":
        yield from _transposed(scale, given, made)
    elif upsampler == "dysample":
        width = given
        if version == 3 and middle != given:
            width = middle
            yield from (_conv(given, middle), nn.LeakyReLU(SLOPE_BEFORE, inplace=True))
        if width % GROUPS:
            raise ValueError(f"upsampler 'dysample' takes channels in groups of {GROUPS}, got {width}")
        yield DySample(width, made, scale)
    else:
        yield from _stepwise(upsampler, steps_of(scale), given, made, middle)


def _stepwise(upsampler: str, steps: list[int], given: int, made: int, middle: int) -> Iterator[nn.Module]:
    """Yield the layers of heads that enlarge step by step."""
    if upsampler == "pixelshuffle":
        yield from (_conv(given, middle), nn.LeakyReLU(SLOPE_BEFORE, inplace=True))
        for step in steps:
            yield from (_conv(middle, middle * step**2), nn.PixelShuffle(step))
        yield _conv(middle, made)
    elif upsampler == "nearest+conv":
        yield from nearest_layers(steps, given, made)
    else:
        for index, step in enumerate(steps):
            yield from (Nearest(step), _conv(middle if index else given, middle), PixelAttention(middle))
            yield from (nn.LeakyReLU(SLOPE, inplace=True), _conv(middle, middle), nn.LeakyReLU(SLOPE, inplace=True))
        yield _conv(middle, made)


def nearest_layers(steps: Iterable[int], given: int, made: int) -> Iterator[nn.Module]:
    """Yield the layers of ``nearest+conv``, which lead (N, given, H, W) through enlargements to ``made`` channels."""
    for step in steps:
        yield from (_conv(given, given), Nearest(step), nn.LeakyReLU(SLOPE, inplace=True))
    yield from (_conv(given, given), nn.LeakyReLU(SLOPE, inplace=True), _conv(given, made))


def steps_of(scale: int) -> list[int]:
    """Return the enlargements that heads by steps make of scale 3 or a power of 2; none of scale 1."""
    return [3] if scale == 3 else [2] * int(math.log2(scale))


def _transposed(scale: int, given: int, made: int) -> Iterator[nn.Module]:
    kernel, stride, padding = _TRANSPOSED[scale]
    if scale == 4:
        yield from (nn.ConvTranspose2d(given, given, kernel, stride, padding), nn.GELU())
    yield nn.ConvTranspose2d(given, made, kernel, stride, padding)
    yield _conv(made, made)


def _conv(given: int, made: int) -> nn.Conv2d:
    return nn.Conv2d(given, made, 3, padding=1)
