"""Lossy compression by Pillow's encoders."""

import io
from typing import Any

import numpy as np
import PIL.Image
from numpy.random import Generator
from PIL import features

from trainauto.tasks.sr.degradations.image import Image, to_image, to_pixels

CODECS = ("jpeg", "webp", "avif")

FASTEST_AVIF = 10
"""libavif's speed from 0 to 10: at 8, a crop of 400 px takes 70 ms."""


def compressed(image: Image, codec: str, quality: int) -> Image:
    """Return the image encoded and decoded again; JPEG with chroma at half the resolution (4:2:0), as BasicSR does.

    Args:
        image: (H, W, C).
        codec: one of :data:`CODECS`.
        quality: 1 to 100.
    """
    pixels = to_pixels(image)
    grey = pixels.shape[2] == 1
    buffer = io.BytesIO()
    more: dict[str, dict[str, Any]] = {
        "jpeg": {"subsampling": "4:2:0"},
        "avif": {"subsampling": "4:2:0", "speed": FASTEST_AVIF},
    }
    PIL.Image.fromarray(pixels[:, :, 0] if grey else pixels).save(buffer, codec, quality=quality, **more.get(codec, {}))
    with PIL.Image.open(buffer) as made:
        decoded = np.asarray(made.convert("L" if grey else "RGB"))
    return to_image(decoded[:, :, None] if grey else decoded)


def drawn_quality(rng: Generator, lowest: int, highest: int) -> int:
    """Draw a quality, uniform over the whole numbers from the lowest to the highest."""
    return int(rng.integers(lowest, highest + 1))


def can_encode(codec: str) -> bool:
    """Say whether the installed Pillow has the encoder."""
    return bool(codec == "jpeg" or features.check(codec))
