"""Decoded pixels on disk, memory-mapped: a crop then costs the pages it touches instead of a whole decode."""

import hashlib
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import remove_leftovers, write_atomically
from trainauto.core.units import GIB
from trainauto.data.decoder_warnings import report_damage
from trainauto.tasks.sr.data.image_io import Pixels, decoded
from trainauto.tasks.sr.data.image_source import file_of
from trainauto.tasks.sr.data.pixel_format import PixelFormat

DECODED = "|upright"
"""How pixels were decoded, as it stands in the names of their files; another word leaves older files behind."""


class PixelCache:
    """One ``.npy`` file an image, made on first use and reopened as a memory map.

    The name of a cache file covers the image's path, size and time of change, so that an edited image is decoded again,
    and how it was decoded: files of versions that left photographs on their side are replaced. Several processes may
    fill the cache at once: files appear whole.

    Args:
        folder: where the files go; made when it is needed.
        form: of the pixels; part of the name, since grey and colour runs may share a folder.
    """

    def __init__(self, folder: str, form: PixelFormat) -> None:
        self.folder = Path(folder).expanduser().resolve()
        self.form = form

    def read(self, path: str) -> Pixels:
        """Return the image as a read-only memory map of shape (H, W, C).

        An image that the decoder says is damaged is kept nowhere, so that each run names it.

        Raises:
            InputError: the image cannot be decoded.
        """
        cached = self._file_of(path)
        with suppress(OSError, ValueError):  # missing, or damaged by something outside our control
            return self._opened(cached)
        pixels, damage = decoded(path, self.form)
        if damage:
            report_damage(path, damage)
            return pixels
        self._keep(cached, path, pixels)
        with suppress(OSError, ValueError):
            return self._opened(cached)
        return pixels

    @staticmethod
    def _opened(cached: Path) -> Pixels:
        pixels: Pixels = np.load(cached, mmap_mode="r")
        return pixels

    def check_room(self, sizes_px: Iterable[tuple[str, int, int]], *, set_name: str) -> None:
        """Refuse a cache that the disk has no room for.

        Args:
            sizes_px: (path, height, width) of every image.
            set_name: dataset to name in the message.

        Raises:
            InputError: missing bytes exceed free bytes.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = Problem(f"dataset '{set_name}': the pixel cache cannot be made: {error}", argument="cache_dir")
            raise InputError(problem) from error
        remove_leftovers(self.folder)
        missing_bytes = sum(
            height * width * self.form.pixel_bytes
            for path, height, width in sizes_px
            if not self._file_of(path).exists() and not self._file_of(path, decoded="").exists()
        )
        free_bytes = shutil.disk_usage(self.folder).free
        if missing_bytes > free_bytes * 0.95:
            raise InputError(
                Problem(
                    f"dataset '{set_name}': the pixel cache needs {missing_bytes / GIB:.1f} GiB more in {self.folder}, "
                    f"{free_bytes / GIB:.1f} GiB are free",
                    advice="Remove cache_dir from the option file, or point it at a larger disk.",
                    argument="cache_dir",
                )
            )

    def _keep(self, cached: Path, path: str, pixels: Pixels) -> None:
        def save(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.save(file, pixels)

        # A full disk costs speed, not the run: the caller then decodes directly.
        with suppress(OSError):
            self._file_of(path, decoded="").unlink(missing_ok=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(cached, save)

    def _file_of(self, path: str, decoded: str = DECODED) -> Path:
        try:
            stat = file_of(path).stat()
        except OSError as error:
            raise InputError(Problem(f"cannot read image {path}: {error}", advice="Remove or replace it.")) from error
        form = str(self.form.channels)  # alone, as versions wrote it that knew no others
        if self.form != PixelFormat(self.form.channels):
            form += f"|{self.form.bits} bits{', luma' if self.form.is_luma else ''}"
        identity = f"{Path(path).resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{form}{decoded}"
        return self.folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.npy"
