"""Where the bytes of an image are: in a file of its own, or in an LMDB database as BasicSR makes them."""

import io
import os
import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, TypeVar

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import open_file

DATABASE_SUFFIX = ".lmdb"
Taken = TypeVar("Taken")
_open: dict[str, Any] = {}
_reading = Lock()
"""Held while databases are opened, read or closed: a fork waits for it."""

_SIZE_BEHIND = re.compile(r"\s+\(\d+,\s*\d+(,\s*\d+)?\).*$")
DATABASE_FILE, _LIST = "data.mdb", "meta_info.txt"


def is_database(folder: Path) -> bool:
    """Say whether a folder is an LMDB database."""
    return folder.suffix == DATABASE_SUFFIX and (folder / DATABASE_FILE).is_file()


def names_in_database(folder: Path) -> list[str]:
    """Return the names of a database's images, with extensions: those that BasicSR lists beside it.

    Raises:
        InputError: it has no list, or the package lmdb is missing.
    """
    with _reading:
        _database(str(folder))
    try:
        lines = (folder / _LIST).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        message = f"{folder} has no {_LIST}, which names the images of a database"
        advice = "BasicSR's scripts/data_preparation/create_lmdb.py writes it."
        raise InputError(Problem(message, advice=advice)) from error
    return [name_in(line) for line in lines if line.strip()]


def name_in(line: str) -> str:
    """Return the name in a line of a list: ``0001_s001.png (480,480,3) 1`` names ``0001_s001.png``."""
    return _SIZE_BEHIND.sub("", line.strip())


def in_database(path: str) -> bool:
    """Say whether a path means an image in a database, ``FOLDER.lmdb/NAME.png``."""
    folder, found, _ = path.partition(DATABASE_SUFFIX + os.sep)
    return bool(found) and is_database(Path(folder + DATABASE_SUFFIX))


def file_of(path: str) -> Path:
    """Return the file that an image is in."""
    if not in_database(path):
        return Path(path)
    return Path(path.partition(DATABASE_SUFFIX + os.sep)[0] + DATABASE_SUFFIX) / DATABASE_FILE


def opened(path: str) -> BinaryIO:
    """Open an image, wherever it is.

    Raises:
        OSError: it is not there, or no file.
        InputError: it is in a database, and the package lmdb is missing.
    """
    return io.BytesIO(stored_bytes(path)) if in_database(path) else open_file(path)


def size_bytes(path: str) -> int:
    """Return how large an image is as it is stored; raises as :func:`opened`."""
    return _stored(path, len) if in_database(path) else Path(path).stat().st_size


@lru_cache(maxsize=8)
def stored_bytes(path: str) -> bytes:
    """Return an image in a database, encoded; raises as :func:`opened`.

    The newest few stay in memory: a header, pixels and orientation are read of one image right after each other.
    """
    return _stored(path, bytes)


def _stored(path: str, taken: Callable[[Any], Taken]) -> Taken:
    """Return what is taken of an image in a database; its key is its name without the extension.

    Raises:
        OSError: it is not there.
        InputError: the package lmdb is missing.
    """
    folder, _, name = path.partition(DATABASE_SUFFIX + os.sep)
    with _reading, _database(folder + DATABASE_SUFFIX).begin(buffers=True) as transaction:
        value = transaction.get(os.path.splitext(name)[0].encode())  # noqa: PTH122 - a key is no path
        if value is not None:
            return taken(value)  # it is there as long as the transaction
    raise FileNotFoundError(f"{folder}{DATABASE_SUFFIX} has no image {name}")


def _database(folder: str) -> Any:
    if folder not in _open:
        try:
            import lmdb
        except ImportError as error:
            message = f"{folder} is a database, and the package lmdb is not installed"
            advice = "pip install 'trainauto[lmdb]', or: pip install lmdb"
            raise InputError(Problem(message, advice=advice)) from error
        _close_before_forks()
        try:
            _open[folder] = lmdb.open(folder, readonly=True, lock=False, readahead=False)
        except lmdb.Error as error:
            raise InputError(f"cannot open the database {folder}: {error}") from error
    return _open[folder]


def _close_all() -> None:
    """Close databases before a fork: lmdb lets no child use what its parent opened, nor open it again."""
    _reading.acquire()
    for folder in [*_open]:
        _open.pop(folder).close()


def _release() -> None:
    if _reading.locked():  # where closing was interrupted, it is not
        _reading.release()


@cache
def _close_before_forks() -> None:
    """Have databases closed before each fork, from the first one that is opened on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_close_all, after_in_parent=_release, after_in_child=_release)
