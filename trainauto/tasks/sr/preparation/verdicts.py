"""Which tiles are kept, and why the others are not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainauto.tasks.sr.preparation.journal import Entry

LOW_DETAIL, BLOCKY, DUPLICATE = "low_detail", "blocky", "duplicate"


@dataclass(frozen=True)
class Thresholds:
    """What is dropped; ``None`` keeps all.

    Attributes:
        duplicates: largest Hamming distance, in bits, of images that look alike.
        detail: tiles below are dropped.
        blockiness: tiles above are dropped.
    """

    duplicates: int | None = None
    detail: float | None = None
    blockiness: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What becomes of an image.

    Attributes:
        kept: numbers of its tiles, from 1.
        dropped: numbers of the others by reason.
        like: name of the image that it looks like, where that is the reason.
    """

    kept: Sequence[int]
    dropped: Mapping[str, Sequence[int]]
    like: str = ""


UNUSED = Verdict((), {})
"""That on an image that cannot be used."""


def verdicts(entries: Mapping[str, Entry], thresholds: Thresholds) -> dict[str, Verdict]:
    """Return the verdict on each image that can be used, by name.

    Of images that look alike the one with the most pixels stays, among equals that of most bits, then the largest file:
    it is compressed the least. Images of which no tile is kept anyway are not compared.
    """
    found = {name: _by_measures(entry, thresholds) for name, entry in entries.items() if not entry.damage}
    if thresholds.duplicates is None:
        return found
    compared = sorted((entries[name] for name, verdict in found.items() if verdict.kept), key=_preference)
    likes = looks_like([int(entry.hash, 16) for entry in compared], thresholds.duplicates)
    for entry, like in zip(compared, likes, strict=True):
        if like is not None:
            before = found[entry.name]
            dropped = {**before.dropped, DUPLICATE: before.kept}
            found[entry.name] = Verdict([], dropped, compared[like].name)
    return found


def _by_measures(entry: Entry, thresholds: Thresholds) -> Verdict:
    kept: list[int] = []
    dropped: dict[str, list[int]] = {}
    for number, (detail, blockiness) in enumerate(entry.tiles, 1):
        if thresholds.detail is not None and detail < thresholds.detail:
            dropped.setdefault(LOW_DETAIL, []).append(number)
        elif thresholds.blockiness is not None and blockiness > thresholds.blockiness:
            dropped.setdefault(BLOCKY, []).append(number)
        else:
            kept.append(number)
    return Verdict(kept, dropped)


def _preference(entry: Entry) -> tuple[int, int, int, str]:
    return -entry.height_px * entry.width_px, -entry.bits, -entry.size_bytes, entry.name


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
