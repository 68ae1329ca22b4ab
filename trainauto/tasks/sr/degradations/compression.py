"""Lossy compression: JPEG by OpenCV, WebP and AVIF by Pillow."""

import io
from typing import Any

import cv2
import numpy as np
import PIL.Image
from numpy.random import Generator
from PIL import features

from trainauto.tasks.sr.degradations.image import Image, Pixels, to_image, to_pixels, with_channels

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
    return to_image(with_channels((_by_opencv if codec == "jpeg" else _by_pillow)(to_pixels(image), codec, quality)))


def _by_opencv(pixels: Pixels, codec: str, quality: int) -> Pixels:
    """JPEG, in little more than half of the time that Pillow takes for the same pixels."""
    grey = pixels.shape[2] == 1
    how = (cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420)
    _, encoded = cv2.imencode(f".{codec}", pixels if grey else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), how)
    decoded = np.asarray(cv2.imdecode(encoded, cv2.IMREAD_GRAYSCALE if grey else cv2.IMREAD_COLOR))
    return decoded if grey else cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)


def _by_pillow(pixels: Pixels, codec: str, quality: int) -> Pixels:
    grey = pixels.shape[2] == 1
    buffer = io.BytesIO()
    more: dict[str, Any] = {"subsampling": "4:2:0", "speed": FASTEST_AVIF} if codec == "avif" else {}
    PIL.Image.fromarray(pixels[:, :, 0] if grey else pixels).save(buffer, codec, quality=quality, **more)
    with PIL.Image.open(buffer) as made:
        return np.asarray(made.convert("L" if grey else "RGB"))


def drawn_quality(rng: Generator, lowest: int, highest: int) -> int:
    """Draw a quality, uniform over the whole numbers from the lowest to the highest."""
    return int(rng.integers(lowest, highest + 1))


def can_encode(codec: str) -> bool:
    """Say whether the installed Pillow has the encoder."""
    return bool(codec == "jpeg" or features.check(codec))
