"""Blur kernels of Real-ESRGAN: Gaussian, generalized Gaussian, plateau-shaped, and sinc.

Sources of the formulas: Wang et al., Real-ESRGAN (2021), section 3.2; Liu et al., generalized Gaussian and plateau
distributions (2020). All kernels sum to 1.
"""

import math

import cv2
import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from trainauto.tasks.sr.degradations.draws import around_one, chosen, happens, odd_size
from trainauto.tasks.sr.degradations.image import Image, with_channels
from trainauto.tasks.sr.degradations.settings import BlurSettings

Kernel = NDArray[np.float32]
"""(size, size)."""

KINDS = ("iso", "aniso", "generalized_iso", "generalized_aniso", "plateau_iso", "plateau_aniso")

SMALL_SINC_PX = 13
"""Sides below which a sinc filter may not cut as low: a small kernel cannot hold its ripples."""


def gaussian_kernel(size_px: int, sigma_x: float, sigma_y: float, angle: float) -> Kernel:
    """Return exp(-q / 2) with q the squared Mahalanobis distance from the centre.

    Args:
        size_px: odd side.
        sigma_x: standard deviation along the first axis, in pixels.
        sigma_y: along the second.
        angle: by which the axes are turned, in radians.
    """
    return _normalized(np.exp(-0.5 * _distance(size_px, sigma_x, sigma_y, angle)))


def generalized_kernel(size_px: int, sigma_x: float, sigma_y: float, angle: float, beta: float) -> Kernel:
    """Return exp(-q^beta / 2): sharper than a Gaussian below ``beta`` 1, flatter above; see `gaussian_kernel`."""
    return _normalized(np.exp(-0.5 * _distance(size_px, sigma_x, sigma_y, angle) ** beta))


def plateau_kernel(size_px: int, sigma_x: float, sigma_y: float, angle: float, beta: float) -> Kernel:
    """Return 1 / (1 + q^beta); see `gaussian_kernel`."""
    return _normalized(1 / (1 + _distance(size_px, sigma_x, sigma_y, angle) ** beta))


def sinc_kernel(size_px: int, cutoff: float) -> Kernel:
    """Return the ideal circular low-pass filter, cutoff * J1(cutoff * r) / (2 pi r).

    Args:
        size_px: odd side.
        cutoff: highest frequency that passes, in radians a pixel, at most pi.
    """
    y, x = _grid(size_px)
    r = np.hypot(x, y)
    centre = size_px // 2
    r[centre, centre] = 1  # the limit there is cutoff^2 / (4 pi)
    bessel = torch.special.bessel_j1(torch.from_numpy(cutoff * r)).numpy()
    kernel = cutoff * bessel / (2 * math.pi * r)
    kernel[centre, centre] = cutoff**2 / (4 * math.pi)
    return _normalized(kernel)


def drawn_kernel(rng: Generator, settings: BlurSettings) -> tuple[Kernel, dict[str, object]]:
    """Draw a kernel; returns it, and what was drawn."""
    size = odd_size(rng, *settings.sizes_px)
    if happens(rng, settings.sinc_prob):
        cutoff = drawn_cutoff(rng, size)
        return sinc_kernel(size, cutoff), {"kernel": "sinc", "size": size, "cutoff": cutoff}
    kind = chosen(rng, settings.kinds)
    sigma_x = sigma_y = float(rng.uniform(*settings.sigma_px))
    angle = 0.0
    if kind.endswith("aniso"):
        sigma_y, angle = float(rng.uniform(*settings.sigma_px)), float(rng.uniform(-math.pi, math.pi))
    drawn: dict[str, object] = {"kernel": kind, "size": size, "sigma": (sigma_x, sigma_y), "angle": angle}
    if kind.startswith("generalized"):
        drawn["beta"] = beta = around_one(rng, *settings.beta_generalized)
        return generalized_kernel(size, sigma_x, sigma_y, angle, beta), drawn
    if kind.startswith("plateau"):
        drawn["beta"] = beta = around_one(rng, *settings.beta_plateau)
        return plateau_kernel(size, sigma_x, sigma_y, angle, beta), drawn
    return gaussian_kernel(size, sigma_x, sigma_y, angle), drawn


def drawn_cutoff(rng: Generator, size_px: int, *, lowest: float | None = None) -> float:
    """Draw the cutoff of a sinc filter: from pi/3 for small ones and pi/5 for others, unless ``lowest`` says."""
    if lowest is None:
        lowest = math.pi / 3 if size_px < SMALL_SINC_PX else math.pi / 5
    return float(rng.uniform(lowest, math.pi))


def filtered(image: Image, kernel: Kernel) -> Image:
    """Return the image filtered with a kernel, mirrored at its edges without repeating the outermost pixel."""
    return with_channels(np.asarray(cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REFLECT_101), np.float32))


def _grid(size_px: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    axis = np.arange(size_px, dtype=np.float64) - size_px // 2
    y, x = np.meshgrid(axis, axis, indexing="ij")
    return y, x


def _distance(size_px: int, sigma_x: float, sigma_y: float, angle: float) -> NDArray[np.float64]:
    """Return the squared Mahalanobis distance of each pixel from the centre."""
    y, x = _grid(size_px)
    along = x * math.cos(angle) + y * math.sin(angle)
    across = y * math.cos(angle) - x * math.sin(angle)
    distance: NDArray[np.float64] = (along / sigma_x) ** 2 + (across / sigma_y) ** 2
    return distance


def _normalized(kernel: NDArray[np.float64]) -> Kernel:
    normalized: Kernel = (kernel / kernel.sum()).astype(np.float32)
    return normalized
