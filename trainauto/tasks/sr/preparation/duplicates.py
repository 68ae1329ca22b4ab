"""Images that look like another one, told by perceptual hashes."""

from collections.abc import Sequence

import numpy as np

_ONES = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)
"""Of each number of 16 bits; numpy counts bits from version 2 on."""


def looks_like(hashes: Sequence[int], most_bits: int) -> list[int | None]:
    """Return for each image the earlier one that it looks like; ``None`` for those that look like none and stay.

    An image is compared with those that stay alone, and the first that is near enough is named.

    Args:
        hashes: 64 bits each, in the order of preference.
        most_bits: largest Hamming distance of images that look alike.
    """
    values = np.array(hashes, np.uint64)
    kept = np.empty_like(values)
    numbers: list[int] = []
    likes: list[int | None] = []
    for number, value in enumerate(values):
        ones = _ONES[(kept[: len(numbers)] ^ value).view(np.uint16)].view(np.uint32)
        # Four counts, a byte each: the product has their sum, of 64 at most, in its highest byte.
        near = np.flatnonzero(ones * np.uint32(0x01010101) >> 24 <= most_bits)
        likes.append(numbers[near[0]] if len(near) else None)
        if not len(near):
            kept[len(numbers)] = value
            numbers.append(number)
    return likes
