"""Images that look like another one, told by perceptual hashes."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

HASH_BITS = 64


def looks_like(hashes: Sequence[int], most_bits: int) -> list[int | None]:
    """Return for each image the earlier one that it looks like; ``None`` for those that look like none and stay.

    An image is compared with those that stay alone, and the first that is near enough is named.

    Args:
        hashes: 64 bits each, in the order of preference.
        most_bits: largest Hamming distance of images that look alike.
    """
    # Hashes that differ in n bits are equal in one of n + 1 bands at least: only those that share a band are compared.
    bands = [(start, end - start) for start, end in _bands(most_bits + 1)]
    staying: list[dict[int, list[int]]] = [defaultdict(list) for _ in bands]
    likes: list[int | None] = []
    for number, value in enumerate(hashes):
        keys = [value >> start & ((1 << width) - 1) for start, width in bands]
        near = [
            other
            for kept, key in zip(staying, keys, strict=True)
            for other in kept.get(key, ())
            if (hashes[other] ^ value).bit_count() <= most_bits
        ]
        likes.append(min(near, default=None))
        if not near:
            for kept, key in zip(staying, keys, strict=True):
                kept[key].append(number)
    return likes


def _bands(count: int) -> list[tuple[int, int]]:
    edges = [HASH_BITS * place // count for place in range(count + 1)]
    return list(pairwise(edges))
