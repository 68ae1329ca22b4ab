"""Writes that are whole or not there at all."""

import errno
import json
import os
import re
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal
from uuid import uuid4

from trainauto.core.errors import TrainautoError
from trainauto.core.system_errors import FULL, errno_of, reason_of

_NOT_WRITTEN = FULL | {errno.EIO}
"""What a flush says where the system has taken bytes that it then found no place for."""


_LONGEST_PART_BYTES = 200
"""Of a folder's or a file's name: disks take 255, of which extensions and temporary files need some."""
_SEPARATOR = re.compile(r"[/\\]")

_LEFTOVER = re.compile(r"\..*\.[0-9a-f]{32}\.tmp(\.\w+)?|\.step_\d+\.tmp")
"""Names of temporary files and folders, those of earlier versions included. Other programs do not use such names."""

NO_FILE = "a FIFO, a socket or a device"
"""What may lie in a folder and is never read."""

OTHERS_ARE_DONE_S = 3600.0
"""Age of leftovers in folders that several processes write into."""


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Have ``write`` fill a temporary file beside ``path``, flush it to disk, then put it in place in one rename.

    Raises:
        OSError: that cannot be done; it names ``path``.
    """
    temporary = _temporary_beside(path)
    try:
        with errors_naming(path):
            write(temporary)
            flush_to_disk(temporary)
            os.replace(temporary, path)
            flush_to_disk(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Have errors of the system name what was to be written: they name a temporary file, or none at all."""
    try:
        yield
    except TrainautoError:
        raise
    except Exception as error:
        number = errno_of(error)
        if number is None:
            raise
        raise OSError(number, reason_of(number), str(path)) from error


def write_text_atomically(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 with Unix newlines, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(text.encode())

    write_atomically(path, write)


def write_json_atomically(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all."""
    write_text_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def directory_written_atomically(path: Path) -> Iterator[Path]:
    """Yield an empty directory beside ``path`` that takes its place, flushed, when the block ends without an error.

    An existing ``path`` is replaced. Leftovers of writers that were killed begin with a dot and end with ``.tmp``.

    Raises:
        OSError: that cannot be done; it names ``path``.
    """
    temporary = _temporary_beside(path)
    try:
        with errors_naming(path):
            temporary.mkdir()
            yield temporary
            for child in temporary.iterdir():
                flush_to_disk(child)
            flush_to_disk(temporary)
            if path.exists():
                remove_folder(path)
            os.replace(temporary, path)
            flush_to_disk(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def remove_folder(folder: Path) -> None:
    """Have a folder be gone at once; what of it cannot be deleted now is a leftover as those of killed writers.

    Raises:
        OSError: it stays as it is.
    """
    doomed = _temporary_beside(folder)
    os.replace(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def place_below(folder: Path, name: str) -> Path:
    """Return where something of a name is kept below a folder: never outside of it, and never too long for a disk.

    The place is the same on every system: what separates folders on one does so on all.

    Args:
        folder: which.
        name: may have slashes and backslashes. Parts that lead up or nowhere are dropped, and what would name a drive
            is no longer one; of a part that is too long the beginning stays, with a checksum, so that no two names
            share a place.
    """
    parts = [part for part in _SEPARATOR.split(name.replace("\0", "")) if part.strip(" .")]
    return folder.joinpath(*([_short_enough(_without_drive(part)) for part in parts] or ["unnamed"]))


def _without_drive(part: str) -> str:
    """Return a part that Windows takes for no drive: ``C:x`` would lead to another disk."""
    return f"{part[0]}_{part[2:]}" if part[1:2] == ":" else part


def _short_enough(part: str) -> str:
    encoded = part.encode(errors="surrogateescape")
    if len(encoded) <= _LONGEST_PART_BYTES:
        return part
    beginning = encoded[: _LONGEST_PART_BYTES - 9].decode(errors="ignore")
    return f"{beginning}~{zlib.crc32(encoded):08x}"


def found_at(path: Path) -> Literal["folder", "file", ""]:
    """Return what there is at a path; nothing where its name is longer than any disk takes, of which others raise."""
    try:
        return "folder" if path.is_dir() else "file" if path.exists() else ""
    except OSError:
        return ""


def open_file(path: str | Path) -> BinaryIO:
    """Open a file to be read. Anything else is refused: opening a FIFO may block for ever.

    Raises:
        OSError: it is not there, or a FIFO, a socket or a device.
    """
    refuse_special(path)
    return Path(path).open("rb")


def refuse_special(path: str | Path) -> None:
    """Raise for what would block those who open it; what a folder is, the system says.

    Raises:
        OSError: it is not there, or a FIFO, a socket or a device.
    """
    mode = Path(path).stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(f"it is {NO_FILE}")


def read_text(path: str | Path, errors: Literal["strict", "replace"] = "strict") -> str:
    """Return the text (UTF-8) of a file.

    Args:
        path: of the file.
        errors: what is done with bytes that are no text, as of :meth:`bytes.decode`.

    Raises:
        OSError: as of :func:`open_file`.
        UnicodeDecodeError: it is no text.
    """
    with open_file(path) as file:
        return file.read().decode(errors=errors)


def nearest_folder(path: Path) -> tuple[Path, str]:
    """Return the nearest there is of ``path`` and the folders above it, and why nothing can be made in it.

    The reason is empty where it can: a folder is made there and removed, since permissions alone do not tell.
    """
    there = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    if not there.is_dir():
        return there, f"{there} is a file"
    try:
        tempfile.TemporaryDirectory(prefix=".trainauto-", dir=there).cleanup()
    except OSError as error:
        return there, str(error)
    return there, ""


def remove_leftovers(folder: Path, *, below: bool = False, older_than_s: float = 0.0) -> None:
    """Delete what killed writers left in ``folder``; what cannot be deleted stays.

    Args:
        folder: which; it need not be there.
        below: in the folders below it, too.
        older_than_s: how long it must have been unchanged, where others may be writing now.
    """
    leftovers = [path for path in (folder.rglob if below else folder.glob)(".*.tmp*") if _LEFTOVER.fullmatch(path.name)]
    for leftover in leftovers:
        with suppress(OSError):
            if older_than_s and time.time() - leftover.lstat().st_mtime < older_than_s:
                continue
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def _temporary_beside(path: Path) -> Path:
    # tempfile's own functions would make it private to the user; a checkpoint should follow the umask.
    # At 50 characters no alphabet makes the name longer than disks take.
    return path.with_name(f".{path.name[:50]}.{uuid4().hex}.tmp")


def flush_to_disk(path: Path) -> None:
    """Have what was written to a file, or to the entries of a folder, survive a power cut."""
    # Files are opened for writing, since Windows flushes no others. Directories cannot be opened there at all; its file
    # system journals renames.
    with suppress(PermissionError):
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            try:
                os.fsync(handle)
            except OSError as error:
                if error.errno in _NOT_WRITTEN:  # others mean that this file system flushes nothing
                    raise
        finally:
            os.close(handle)
