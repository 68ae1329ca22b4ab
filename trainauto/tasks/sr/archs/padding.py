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


def reflect_to_multiple(features: Tensor, multiple: int, multiple_w: int | None = None) -> Tensor:
    """Reflect features beyond their right and lower edge until their sides are multiples of some numbers.

    The edge pixel stands once (``abc`` becomes ``abcba``), as in ``torch.nn.functional.pad``; unlike there, the mirror
    continues for as long as it takes.

    Args:
        features: (N, C, H, W).
        multiple: what the height of the result is a multiple of.
        multiple_w: the same of the width; that of the height where none is given.

    Returns:
        (N, C, H', W') with the smallest such H' >= H and W' >= W; the features themselves where nothing is missing.
    """
    for dim, step in ((2, multiple), (3, multiple_w or multiple)):
        size = features.shape[dim]
        padded = (size + step - 1) // step * step
        if torch.compiler.is_compiling() or padded != size:  # as above
            features = features.index_select(dim, _reflected(size, torch.arange(padded, device=features.device)))
    return features


def reflect_around(features: Tensor, border: int) -> Tensor:
    """Reflect features (N, C, H, W) beyond all their edges, as above: (N, C, H + 2 border, W + 2 border)."""
    return reflect_sides(features, (border, border), (border, border))


def reflect_sides(features: Tensor, rows: tuple[int, int], columns: tuple[int, int]) -> Tensor:
    """Reflect features (N, C, H, W) beyond their edges, as above, by other numbers of pixels at each edge.

    Args:
        features: (N, C, H, W).
        rows: pixels above and below.
        columns: pixels at the left and the right.
    """
    for dim, (before, after) in ((2, rows), (3, columns)):
        size = features.shape[dim]
        place = torch.arange(-before, size + after, device=features.device).abs()
        features = features.index_select(dim, _reflected(size, place))
    return features


def _reflected(size: int, place: Tensor) -> Tensor:
    """Return which of ``size`` pixels stands at places from 0 on."""
    place = place % max(2 * size - 2, 1)
    return torch.minimum(place, 2 * size - 2 - place)


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
