"""Decoded pixels in memory that the run and its workers share: a crop then costs the pages it touches."""

import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainauto.core.free_memory import free_memory_bytes
from trainauto.data.decoder_warnings import report_damage
from trainauto.tasks.sr.data.image_io import Pixels, decoded
from trainauto.tasks.sr.data.pixel_format import PixelFormat

LARGEST_SHARE = 0.25
"""Of the free memory; what is left is the run's, its workers' and everyone else's."""


def room_bytes() -> int:
    """Return how many bytes the decoded pixels of a set may take; ranks of one machine share its memory."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return int(LARGEST_SHARE * (free_memory_bytes() or 0) / max(1, ranks))


def bytes_of(sizes_px: Mapping[str, tuple[int, int]], form: PixelFormat) -> int:
    """Return the bytes of images by (height, width)."""
    return sum(height * width for height, width in sizes_px.values()) * form.pixel_bytes


class SharedPixels:
    """Images that are decoded when they are first read, by whichever process reads them, and stay until the run ends.

    The memory is taken page by page as images come. Workers that are forked share it; a worker that is started in
    another way gets none of it, and decodes each time.

    Args:
        sizes_px: (height, width) by path.
        form: of the pixels.
    """

    def __init__(self, sizes_px: Mapping[str, tuple[int, int]], form: PixelFormat) -> None:
        self.form = form
        self._places: dict[str, tuple[int, int, tuple[int, int, int]]] = {}
        first = 0
        for number, (path, (height, width)) in enumerate(sizes_px.items()):
            self._places[path] = number, first, (height, width, form.channels)
            first += height * width * form.channels
        self._pixels = _shared(first, form.dtype)
        self._is_there = _shared(len(sizes_px), np.uint8)

    def read(self, path: str) -> Pixels:
        """Return an image, (H, W, C), not to be written to.

        An image that the decoder says is damaged, or that has another size than before, is not kept.

        Raises:
            InputError: the image cannot be decoded.
        """
        place = self._places.get(path)
        if place is not None and self._is_there[place[0]]:
            return self._view(place[1], place[2])
        pixels, damage = decoded(path, self.form)
        if damage:
            report_damage(path, damage)
        elif place is not None and pixels.shape == place[2]:
            number, first, _ = place
            self._pixels[first : first + pixels.size] = pixels.reshape(-1)
            self._is_there[number] = 1  # two processes that come at once write the same
        return pixels

    @property
    def kept(self) -> int:
        """How many images are decoded by now."""
        return int(self._is_there.sum())

    def _view(self, first: int, shape: tuple[int, int, int]) -> Pixels:
        view = self._pixels[first : first + shape[0] * shape[1] * shape[2]].reshape(shape)
        view.flags.writeable = False
        return view

    def __getstate__(self) -> dict[str, Any]:
        return {"form": self.form}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.form, self._places = state["form"], {}
        self._pixels = self._is_there = np.zeros(0, np.uint8)


def _shared(size: int, dtype: type[np.uint8] | type[np.uint16]) -> Pixels:
    return np.frombuffer(mmap.mmap(-1, max(1, size * np.dtype(dtype).itemsize)), dtype)
