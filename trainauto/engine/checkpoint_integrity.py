"""Whether a checkpoint is what was written: sizes and checksums of its files lie beside them."""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from safetensors import SafetensorError, safe_open

from trainauto.core.files import read_text, write_json_atomically
from trainauto.core.json_text import from_json

SUMS_FILE = "sums.json"
WEIGHTS = "*.safetensors"
_BLOCK_BYTES = 1 << 20


def write_sums(folder: Path, *, leave_out: str = "") -> None:
    """Note size and CRC-32 of every file in a folder, but for those whose names are of a pattern."""
    files = [file for file in _files(folder) if not fnmatch(file.name, leave_out)]
    _write(folder, {file.name: _sum_of(file) for file in files})


@contextmanager
def sums_renewed(folder: Path, name: str, *, leave_out: str = "") -> Iterator[None]:
    """Have one file of a folder change inside: no sum is wrong at any moment, and no other file is read again.

    Args:
        folder: with the files.
        name: of the file.
        leave_out: pattern of the names of files that are not noted.
    """
    try:
        sums = noted_sums(folder)
    except ValueError:
        sums = {}
    noted = [file for file in _files(folder) if file.name != name and not fnmatch(file.name, leave_out)]
    others = {file.name: sums.get(file.name) or _sum_of(file) for file in noted}
    _write(folder, others)
    yield
    _write(folder, others | {name: _sum_of(folder / name)})


def noted_sums(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size in bytes and CRC-32 of each file, as they were noted; empty where nothing was.

    Raises:
        ValueError: what was noted is damaged.
        OSError: it cannot be read.
    """
    try:
        noted = from_json(read_text(folder / SUMS_FILE))
        return {str(name): (int(entry["bytes"]), int(entry["crc32"])) for name, entry in noted.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{SUMS_FILE} cannot be read: {error}") from error


def damage_of(folder: Path) -> str:
    """Say what is wrong with the files of a checkpoint; empty where nothing is.

    Neither torch's files nor safetensors notice a changed byte by themselves. Where nothing was noted (an earlier
    version), weights are looked at as far as their header tells.

    Raises:
        OSError: a file cannot be read now, which says nothing of what is in it.
    """
    try:
        sums = noted_sums(folder)
    except ValueError as error:
        return str(error)
    weights = sorted(folder.glob(WEIGHTS))
    if not (folder / SUMS_FILE).is_file():
        return next(filter(None, map(_damage_of_header, weights)), "")
    unknown = (f"{SUMS_FILE} lacks {file.name}" for file in weights if file.name not in sums)
    damages = (_damage_of_file(folder / name, *noted) for name, noted in sums.items())
    return next(filter(None, damages), "") or next(unknown, "")


def _damage_of_file(file: Path, size_bytes: int, crc32: int) -> str:
    try:
        found_bytes = file.stat().st_size
        if found_bytes != size_bytes:
            return f"{file.name} has {found_bytes} of {size_bytes} bytes"
        return "" if _crc32(file) == crc32 else f"{file.name} has changed since it was written: its checksum differs"
    except FileNotFoundError:
        return f"{file.name} is missing"


def _damage_of_header(file: Path) -> str:
    file.open("rb").close()  # what cannot be opened says so here
    try:
        with safe_open(file, "pt"):
            return ""
    except SafetensorError as error:
        return f"{file.name} cannot be read: {error}"


def _files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.iterdir()) if file.is_file() and file.name != SUMS_FILE]


def _write(folder: Path, sums: Mapping[str, tuple[int, int]]) -> None:
    text = {name: {"bytes": size_bytes, "crc32": crc32} for name, (size_bytes, crc32) in sums.items()}
    write_json_atomically(folder / SUMS_FILE, text)


def _sum_of(file: Path) -> tuple[int, int]:
    return file.stat().st_size, _crc32(file)


def _crc32(file: Path) -> int:
    checksum = 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum
