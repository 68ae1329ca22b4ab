"""Padding of images to sides that a network can cut into equal pieces."""

import torch
from torch import Tensor


def pad_to_multiple(image: Tensor, multiple: int) -> Tensor:
    """Mirror an image beyond its right and lower edge until its sides are multiples of ``multiple``.

    The edge pixel is repeated (``abc`` becomes ``abccba``), and the mirror continues for as long as it takes, so that
    even a single pixel can be padded to any size. The reflection of ``torch.nn.functional.pad`` cannot do that.

    Args:
        image: (N, C, H, W).
        multiple: what the sides of the result are multiples of.

    Returns:
        (N, C, H', W') with the smallest such H' >= H and W' >= W; the image itself where nothing is missing.
    """
    for dim in (2, 3):
        size = image.shape[dim]
        padded = (size + multiple - 1) // multiple * multiple
        # A compiled graph always gathers. A branch would split it by size, and this way the shapes say what they are
        # multiples of: otherwise torch.compile spends minutes on proving that windows fit.
        if torch.compiler.is_compiling() or padded != size:
            image = image.index_select(dim, _mirrored(size, padded, image.device))
    return image


def pad_to(image: Tensor, height: int, width: int) -> Tensor:
    """Mirror an image (N, C, H, W) beyond its right and lower edge, as above, to (N, C, height, width).

    Sides that are there already stay as they are.
    """
    for dim, padded in ((2, height), (3, width)):
        if padded > image.shape[dim]:
            image = image.index_select(dim, _mirrored(image.shape[dim], padded, image.device))
    return image


def _mirrored(size: int, padded: int, device: torch.device) -> Tensor:
    """Return which of ``size`` pixels stands at each of ``padded`` places."""
    place = torch.arange(padded, device=device) % (2 * size)
    return torch.minimum(place, 2 * size - 1 - place)
