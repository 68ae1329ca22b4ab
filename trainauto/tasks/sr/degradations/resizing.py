"""Resizing by the modes of BasicSR and traiNNer-redux."""

import numpy as np
import PIL.Image
import torch
import torch.nn.functional as F
from numpy.random import Generator

from trainauto.tasks.sr.degradations.draws import weighted
from trainauto.tasks.sr.degradations.image import Image
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
    tensor = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None]
    made = F.interpolate(tensor, (height_px, width_px), mode=kind, **smooth)
    return np.ascontiguousarray(made[0].numpy().transpose(1, 2, 0))


def _by_lanczos(image: Image, height_px: int, width_px: int) -> Image:
    """Pillow resizes single float channels in full precision."""
    channels = [PIL.Image.fromarray(np.ascontiguousarray(image[:, :, c])) for c in range(image.shape[2])]
    size, method = (width_px, height_px), PIL.Image.Resampling.LANCZOS
    return np.stack([np.asarray(channel.resize(size, method), np.float32) for channel in channels], axis=2)
