"""Unsharp masking, and thicker lines."""

from dataclasses import dataclass

import cv2
import numpy as np

from trainauto.tasks.sr.degradations.image import Image, with_channels

TARGET_RADIUS_PX = 50
"""Of BasicSR, for what networks learn to make."""


@dataclass(frozen=True)
class Sharpening:
    """What is sharpened before an image is degraded.

    Attributes:
        degraded: low-quality images are made of the sharpened image, as BasicSR does.
        target: the sharpened image is what networks learn to make.
        radii_px: low-quality images are made of an image that is sharpened by a radius of this range, as in
            traiNNer-redux; ``None`` where they are not.
    """

    degraded: bool = False
    target: bool = False
    radii_px: tuple[int, int] | None = None


def sharpened(image: Image, radius_px: int = TARGET_RADIUS_PX, weight: float = 0.5, threshold: float = 10) -> Image:
    """Return the image with its detail amplified where there is much of it, as BasicSR's USM does.

    The detail is what a Gaussian blur removes. Where it exceeds the threshold, blurred edges of that mask blend in
    image + weight * detail.

    Args:
        image: (H, W, C).
        radius_px: side of the Gaussian; an even one is made odd by adding 1. Its standard deviation follows as in
            OpenCV: 0.3 * ((side - 1) / 2 - 1) + 0.8.
        weight: of the detail.
        threshold: in 255ths.
    """
    side = radius_px + 1 - radius_px % 2
    detail = image - _blurred(image, side)
    mask = (np.abs(detail) * 255 > threshold).astype(np.float32)
    soft = _blurred(mask, side)
    detail *= np.float32(weight)
    strong = np.clip(image + detail, 0, 1)
    strong -= image
    strong *= soft
    strong += image
    return strong


def with_thick_lines(image: Image) -> Image:
    """Return 3/4 of the image and 1/4 of the darkest of each 3x3 pixels, as traiNNer-redux's thick lines."""
    darkest = with_channels(np.asarray(cv2.erode(image, np.ones((3, 3), np.uint8)), np.float32))
    return np.float32(0.75) * image + np.float32(0.25) * darkest


def _blurred(image: Image, side: int) -> Image:
    kernel = cv2.getGaussianKernel(side, 0, cv2.CV_32F)
    return with_channels(
        np.asarray(cv2.sepFilter2D(image, -1, kernel, kernel, borderType=cv2.BORDER_REFLECT_101), np.float32)
    )
