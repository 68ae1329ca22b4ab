"""Colours as losses compare them, of float32 images (N, 3, H, W) from 0 to 1.

Sums of channels are written out. As a matrix product or a convolution they might run in TF32 on a card, whose ten bits
of mantissa are too few for differences that are left to learn.
"""

import torch
from torch import Tensor

SMALLEST = 1e-12
"""Values are clamped to it, so that roots have a finite slope."""


def require_rgb(image: Tensor, loss: str) -> None:
    """Raise a ValueError where an image does not have three channels."""
    if image.shape[1] != 3:
        raise ValueError(f"{loss} compares colours: it needs 3 channels, the images have {image.shape[1]}")


def luma(image: Tensor) -> Tensor:
    """Return Y of ITU-R BT.601 with full range, (N, 1, H, W): .299 R + .587 G + .114 B."""
    red, green, blue = image.chunk(3, dim=1)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def video_luma(image: Tensor) -> Tensor:
    """Return Y of ITU-R BT.601 with the range of video, 16/255 to 235/255, (N, 1, H, W), as ``calculate_psnr`` does."""
    red, green, blue = image.chunk(3, dim=1)
    return (65.481 * red + 128.553 * green + 24.966 * blue + 16) / 255


def video_chroma(image: Tensor) -> Tensor:
    """Return Cb and Cr of ITU-R BT.601 with the range of video, (N, 2, H, W)."""
    red, green, blue = image.chunk(3, dim=1)
    cb = -37.797 * red - 74.203 * green + 112.0 * blue
    cr = 112.0 * red - 93.786 * green - 18.214 * blue
    return (torch.cat((cb, cr), dim=1) + 128) / 255


def linear(image: Tensor) -> Tensor:
    """Undo the transfer function of sRGB (IEC 61966-2-1); values outside of 0 to 1 are clamped."""
    image = image.clamp(SMALLEST, 1)
    return torch.where(image <= 0.04045, image / 12.92, ((image + 0.055) / 1.055) ** 2.4)
