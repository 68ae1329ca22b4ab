"""Whether a checkpoint is what was written: sizes and checksums of its files lie beside them."""

import json
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from trainauto.core.files import write_json_atomically

SUMS_FILE = "sums.json"
_BLOCK_BYTES = 1 << 20


def write_sums(folder: Path, *, without: Collection[str] = ()) -> None:
    """Note size and CRC-32 of every file in a folder, but for those that are about to change."""
    files = (file for file in sorted(folder.iterdir()) if file.name not in {SUMS_FILE, *without})
    sums = {file.name: {"bytes": file.stat().st_size, "crc32": _crc32(file)} for file in files if file.is_file()}
    write_json_atomically(folder / SUMS_FILE, sums)


def damage_of(folder: Path) -> str:
    """Say what is wrong with the files of a checkpoint; empty where nothing is, or nothing was noted of them.

    Neither torch's files nor safetensors notice a changed byte by themselves.
    """
    try:
        sums: dict[str, Any] = json.loads((folder / SUMS_FILE).read_text(encoding="utf-8"))
        known = [(str(name), int(one["bytes"]), int(one["crc32"])) for name, one in sums.items()]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{SUMS_FILE} cannot be read: {error}"
    return next((found for one in known if (found := _damage_of_file(folder, *one))), "")


def _damage_of_file(folder: Path, name: str, size_bytes: int, crc32: int) -> str:
    file = folder / name
    try:
        found_bytes = file.stat().st_size
        if found_bytes != size_bytes:
            return f"{name} has {found_bytes} of {size_bytes} bytes"
        return "" if _crc32(file) == crc32 else f"{name} is not what was written: its checksum differs"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"


def _crc32(file: Path) -> int:
    found = 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK_BYTES):
            found = zlib.crc32(block, found)
    return found
