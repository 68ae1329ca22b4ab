"""Augmentations that mix two crops, or a crop's two resolutions, one crop at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from trainauto.tasks.sr.data.image_io import Pixels
from trainauto.tasks.sr.degradations.draws import happens, weighted
from trainauto.tasks.sr.degradations.image import to_image, to_pixels
from trainauto.tasks.sr.degradations.pipeline import Drawn, generator_of
from trainauto.tasks.sr.degradations.resizing import resized

Crops = dict[str, Pixels]
"""``lq`` (s, s, C), and the references of the sample, (s * scale, s * scale, C)."""

Partner = Callable[[], Crops]
"""Makes the crops of another sample, of the same size."""

NONE = "none"
_STREAM = 0x6175_676D
"""Keeps these draws apart from others of the same seed."""

SOFT = ("bicubic", "bilinear")
ENLARGING = (*SOFT, "nearest-exact")


@dataclass(frozen=True)
class Augmentations:
    """Which augmentations are drawn, one for each sample; the ranges are those of traiNNer-redux.

    Attributes:
        kinds: names of :data:`KINDS`, and ``none``.
        weights: how often each is drawn, in proportion.
    """

    kinds: Sequence[str]
    weights: Sequence[float]

    def applied(self, crops: Crops, seed: int, partner: Partner) -> tuple[Crops, list[Drawn]]:
        """Return the crops with the augmentation that a sample's seed draws, and what was drawn.

        Args:
            crops: of the sample; they are not changed.
            seed: of the sample.
            partner: asked where the augmentation mixes two samples.
        """
        rng = generator_of(seed, _STREAM)
        kind = weighted(rng, self.kinds, self.weights)
        if kind == NONE:
            return crops, []
        made, values = KINDS[kind](crops, rng, partner)
        return made, [Drawn(kind, values)]


Augmented = tuple[Crops, dict[str, object]]


@dataclass(frozen=True)
class _Box:
    """A part of a low-quality crop, in its pixels; at least one pixel."""

    top: int
    left: int
    bottom: int
    right: int

    def of(self, image: Pixels, by: int) -> Pixels:
        """Return the same part of an image that is so many times larger, as a view."""
        return image[self.top * by : self.bottom * by, self.left * by : self.right * by]

    def values(self) -> dict[str, object]:
        """Return what a person is shown."""
        return {"box": (self.bottom - self.top, self.right - self.left), "at": (self.top, self.left)}


def _centred_box(rng: Generator, side: int, share: float) -> _Box:
    """Return a box around a uniform centre, a share of the side long where the edges do not cut it."""
    half = max(1, int(side * share) // 2)
    row, column = (int(place) for place in rng.integers(side, size=2))
    return _Box(max(0, row - half), max(0, column - half), min(side, row + half), min(side, column + half))


def _factor(crops: Crops, name: str) -> int:
    return len(crops[name]) // len(crops["lq"])


def _resized(pixels: Pixels, size: tuple[int, ...], mode: str) -> Pixels:
    return to_pixels(resized(to_image(pixels), size[0], size[1], mode), pixels.dtype)


def _mixup(crops: Crops, rng: Generator, partner: Partner) -> Augmented:
    """Average two samples."""
    share, other = float(rng.uniform(0.4, 0.6)), partner()
    mixed = {
        name: to_pixels(share * to_image(pixels) + (1 - share) * to_image(other[name]), pixels.dtype)
        for name, pixels in crops.items()
    }
    return mixed, {"share": share}


def _cutmix(crops: Crops, rng: Generator, partner: Partner) -> Augmented:
    """Replace a box by that of another sample; the box takes 10 to 100 % of the area before edges cut it."""
    box, other = _centred_box(rng, len(crops["lq"]), float(np.sqrt(1 - rng.uniform(0, 0.9)))), partner()
    made = {name: pixels.copy() for name, pixels in crops.items()}
    for name, pixels in made.items():
        by = _factor(crops, name)
        box.of(pixels, by)[:] = box.of(other[name], by)
    return made, box.values()


def _resizemix(crops: Crops, rng: Generator, partner: Partner) -> Augmented:
    """Paste another sample, shrunk, over a box."""
    box, other = _centred_box(rng, len(crops["lq"]), float(rng.uniform(0.5, 0.9))), partner()
    made = {name: pixels.copy() for name, pixels in crops.items()}
    for name, pixels in made.items():
        place = box.of(pixels, _factor(crops, name))
        place[:] = _resized(other[name], place.shape, "bicubic")
    return made, box.values()


def _cutblur(crops: Crops, rng: Generator, _: Partner) -> Augmented:
    """Replace a box of the low-quality crop by the high-quality crop, shrunk."""
    box = _centred_box(rng, len(crops["lq"]), float(rng.uniform(0.2, 0.7)))
    made = {**crops, "lq": crops["lq"].copy()}
    place = box.of(made["lq"], 1)
    place[:] = _resized(box.of(crops["gt"], _factor(crops, "gt")), place.shape, "bicubic")
    return made, box.values()


def _downup(crops: Crops, rng: Generator, _: Partner) -> Augmented:
    """Shrink the low-quality crop and enlarge it to its size again, not both by the nearest pixel."""
    side, factor = len(crops["lq"]), float(rng.uniform(0.5, 0.9))
    down, up = (ENLARGING[int(place)] for place in rng.integers(len(ENLARGING), size=2))
    if down == up == "nearest-exact":
        soft = SOFT[int(rng.integers(len(SOFT)))]
        down, up = (down, soft) if happens(rng, 0.5) else (soft, up)
    small = max(1, round(side * factor))
    lq = _resized(_resized(crops["lq"], (small, small), down), (side, side), up)
    return {**crops, "lq": lq}, {"size": (small, small), "down": down, "up": up}


def _up(crops: Crops, rng: Generator, _: Partner) -> Augmented:
    """Enlarge a part of the crops to the size of the whole."""
    side = len(crops["lq"])
    length = max(1, int(side * rng.uniform(0.5, 0.9)))
    top, left = (int(place) for place in rng.integers(side - length + 1, size=2))
    box, mode = _Box(top, left, top + length, left + length), ENLARGING[int(rng.integers(len(ENLARGING)))]
    made = {
        name: _resized(box.of(pixels, _factor(crops, name)), pixels.shape, mode if name == "lq" else "bicubic")
        for name, pixels in crops.items()
    }
    return made, {**box.values(), "mode": mode}


KINDS: dict[str, Callable[[Crops, Generator, Partner], Augmented]] = {
    "mixup": _mixup,
    "cutmix": _cutmix,
    "resizemix": _resizemix,
    "cutblur": _cutblur,
    "downup": _downup,
    "up": _up,
}
