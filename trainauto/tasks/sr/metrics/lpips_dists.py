"""LPIPS and DISTS: how far images are apart to people, by features of towers. Lower is better."""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainauto.tasks.sr.metrics.registry import register_metric
from trainauto.tasks.sr.towers.dists import Dists
from trainauto.tasks.sr.towers.lpips import Lpips, Net

PixelArray = NDArray[np.uint8]


@register_metric("calculate_lpips", "lpips", better_is_higher=False)
def calculate_lpips(
    image: PixelArray, reference: PixelArray, *, net: Net = "alex", weights: str | None = None
) -> float:
    """Return LPIPS 0.1 of all pixels and colours, computed on the CPU; 0 for identical images.

    Args:
        image: (H, W, 3) in RGB order.
        reference: the same shape.
        net: tower whose features are compared, ``alex`` or ``vgg``; published figures are of ``alex``.
        weights: file of the tower's weights; without it torch.hub's folder is looked into.

    Raises:
        InputError: the tower's weights, or the package lpips, are not there.
        ValueError: the images differ in shape, have no colours, or are too small.
    """
    return _distance(_lpips(net, weights), "LPIPS", image, reference)


@register_metric("calculate_dists", "dists", better_is_higher=False)
def calculate_dists(image: PixelArray, reference: PixelArray, *, weights: str | None = None) -> float:
    """Return DISTS of all pixels and colours in their own size, computed on the CPU; 0 for identical images.

    Args:
        image: (H, W, 3) in RGB order.
        reference: the same shape.
        weights: file of VGG16's weights; without it torch.hub's folder is looked into.

    Raises:
        InputError: VGG16's weights, or the package DISTS-pytorch, are not there.
        ValueError: the images differ in shape, or have no colours.
    """
    return _distance(_dists(weights), "DISTS", image, reference)


@cache
def _lpips(net: Net, weights: str | None) -> Lpips:
    return Lpips(net, weights)


@cache
def _dists(weights: str | None) -> Dists:
    return Dists(weights)


@torch.no_grad()
def _distance(compare: Lpips | Dists, name: str, image: PixelArray, reference: PixelArray) -> float:
    if image.shape != reference.shape:
        raise ValueError(f"the image is {_shape(image)}, its reference {_shape(reference)}")
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or reference.dtype != np.uint8:
        raise ValueError(f"{name} takes uint8 images of shape (H, W, 3), not {image.dtype} of shape {image.shape}")
    if min(image.shape[:2]) < (smallest_px := compare.tower.smallest_px):
        raise ValueError(f"{name} needs at least {smallest_px}x{smallest_px} px, the image is {_shape(image)}")
    return float(compare(_prepared(image), _prepared(reference)))


def _prepared(pixels: PixelArray) -> Tensor:
    """Return pixels as float32 from 0 to 1, (1, 3, H, W)."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None].float() / 255


def _shape(pixels: NDArray[np.generic]) -> str:
    return "x".join(str(side) for side in pixels.shape)
