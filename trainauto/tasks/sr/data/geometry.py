"""Crops, flips and shrinking: pure functions of pixels and numbers."""

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.core.hashing import splitmix64
from trainauto.tasks.sr.data.image_io import Pixels
from trainauto.tasks.sr.degradations.image import to_image, to_pixels, with_channels
from trainauto.tasks.sr.degradations.resizing import resized

REACH_PX = 3
"""Half-width of the widest antialiased kernel, Lanczos's, in pixels of its output; bicubic's is 2."""


def crop_corner_px(seed: int, height_px: int, width_px: int, side_px: int) -> tuple[int, int]:
    """Return (top, left) of a square crop, uniform over all places it fits; 0 on a side shorter than the crop."""
    draw = splitmix64(seed)
    top = (draw >> 32) * max(1, height_px - side_px + 1) >> 32
    left = (draw & 0xFFFFFFFF) * max(1, width_px - side_px + 1) >> 32
    return top, left


def padded_to(pixels: Pixels, height_px: int, width_px: int) -> Pixels:
    """Grow an image to at least this size by mirroring it at its lower and right edge (any size, even one pixel)."""
    missing = max(0, height_px - pixels.shape[0]), max(0, width_px - pixels.shape[1])
    if missing == (0, 0):
        return pixels
    padded: Pixels = np.pad(pixels, ((0, missing[0]), (0, missing[1]), (0, 0)), mode="symmetric")
    return padded


def flipped(pixels: Pixels, seed: int, *, use_hflip: bool, use_rot: bool) -> Pixels:
    """Flip and turn by one of the eight symmetries of the square, chosen by ``seed``.

    ``use_hflip`` allows left-right flips, ``use_rot`` allows up-down flips and transposition, as in BasicSR.
    """
    draw = splitmix64(seed ^ 0x5851F42D4C957F2D)
    # OpenCV: copying a turned view of NumPy's takes ten times as long.
    if use_hflip and draw & 1:
        pixels = with_channels(cv2.flip(pixels, 1))
    if use_rot and draw & 2:
        pixels = with_channels(cv2.flip(pixels, 0))
    if use_rot and draw & 4:
        pixels = with_channels(cv2.transpose(pixels))
    return pixels


def shrunk(pixels: Pixels, scale: int, mode: str = "bicubic") -> Pixels:
    """Shrink by an integer factor, rounded to its bits; bicubic is antialiased and has a = -0.5.

    Height and width must be multiples of ``scale``. Modes are those of
    :func:`~trainauto.tasks.sr.degradations.resizing.resized`.
    """
    if scale == 1:
        return pixels
    height, width = pixels.shape[0] // scale, pixels.shape[1] // scale
    if mode != "bicubic":
        return to_pixels(resized(to_image(pixels), height, width, mode), pixels.dtype)
    tensor = to_tensor(pixels)
    image, dtype = tensor[None].float(), tensor.dtype
    small = F.interpolate(image, (height, width), mode="bicubic", antialias=True, align_corners=False)
    result: Pixels = small.round_().clamp_(0, torch.iinfo(dtype).max)[0].permute(1, 2, 0).to(dtype).numpy()
    return result


def shrunk_crop(pixels: Pixels, top: int, left: int, side_px: int, scale: int, mode: str = "bicubic") -> Pixels:
    """Return the crop (in low-quality pixels) that :func:`shrunk` of the whole image would have there, to the bit.

    Only the crop and the kernel's reach around it are shrunk; a window that starts on a multiple of ``scale`` has the
    same kernel weights as the whole image.
    """
    height, width = pixels.shape[0] // scale, pixels.shape[1] // scale
    y0, x0 = max(0, top - REACH_PX - 1), max(0, left - REACH_PX - 1)
    y1, x1 = min(height, top + side_px + REACH_PX + 1), min(width, left + side_px + REACH_PX + 1)
    window = shrunk(pixels[y0 * scale : y1 * scale, x0 * scale : x1 * scale], scale, mode)
    return window[top - y0 : top - y0 + side_px, left - x0 : left - x0 + side_px]


def to_tensor(pixels: Pixels) -> Tensor:
    """Return a copy of (H, W, C) pixels as a contiguous tensor (C, H, W) of their bits."""
    # Always a copy: torch refuses to promise anything about tensors over read-only memory maps.
    return torch.from_numpy(np.array(pixels.transpose(2, 0, 1), order="C", copy=True))


def in_8_bits(pixels: Tensor) -> Tensor:
    """Return pixels of any shape; those of 16 bits are rounded to 8, others stay as they are."""
    return (pixels.float() / 257).round_().to(torch.uint8) if pixels.dtype == torch.uint16 else pixels


def largest_of(pixels: Tensor) -> int:
    """Return the value of full brightness: 65,535 of pixels of 16 bits, else 255."""
    return 65535 if pixels.dtype == torch.uint16 else 255
