"""Resizing by the modes of BasicSR and traiNNer-redux."""

import cv2
import numpy as np
import PIL.Image
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray

from trainauto.tasks.sr.degradations.draws import weighted
from trainauto.tasks.sr.degradations.image import Image, with_channels
from trainauto.tasks.sr.degradations.settings import Range

ALIASED = "-aliased"
MODES = ("area", "bilinear", "bicubic", "nearest-exact", "lanczos", f"bilinear{ALIASED}", f"bicubic{ALIASED}")
"""`bilinear` and `bicubic` are antialiased, as in traiNNer-redux; with the suffix they are not, as in BasicSR."""


def resized(image: Image, height_px: int, width_px: int, mode: str) -> Image:
    """Return the image at another size, clipped to 0 to 1: some kernels overshoot.

    `area` averages the pixels that each new one covers; `lanczos` has three lobes and widens when it shrinks.
    """
    if image.shape[:2] == (height_px, width_px):
        return image
    made = _by_lanczos(image, height_px, width_px) if mode == "lanczos" else _by_torch(image, height_px, width_px, mode)
    return np.clip(made, 0, 1, out=made)


def drawn_factor(rng: Generator, weights: tuple[float, float, float], bounds: Range) -> float:
    """Draw a factor: above 1, below 1, or just 1, by the weights of the three, and uniform on its side."""
    direction = weighted(rng, ("up", "down", "keep"), weights)
    if direction == "keep":
        return 1.0
    return float(rng.uniform(1, bounds[1]) if direction == "up" else rng.uniform(bounds[0], 1))


def _by_torch(image: Image, height_px: int, width_px: int, mode: str) -> Image:
    kind = mode.removesuffix(ALIASED)
    smooth = {"align_corners": False, "antialias": kind == mode} if kind in ("bilinear", "bicubic") else {}
    planes = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).contiguous()
    made = F.interpolate(planes[None], (height_px, width_px), mode=kind, **smooth)[0]
    return _merged(list(made.numpy()))


def _by_lanczos(image: Image, height_px: int, width_px: int) -> Image:
    """Pillow resizes single float channels in full precision."""
    size, method = (width_px, height_px), PIL.Image.Resampling.LANCZOS
    channels = [PIL.Image.fromarray(channel).resize(size, method) for channel in cv2.split(image)]
    return _merged([np.asarray(channel) for channel in channels])


def _merged(planes: list[NDArray[np.float32]]) -> Image:
    """Return (H, W, C) of C planes; NumPy takes five times as long."""
    return with_channels(np.asarray(cv2.merge(planes), np.float32))
