"""What a PNG carries beside its pixels: the colour profile they are in, and what made them."""

import os
import shutil
import zlib
from pathlib import Path

PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
"""The last chunk of a PNG that is whole."""
_MARK = b"trainauto"
_HEAD_BYTES = 33
"""Signature and IHDR, which come first."""
_MOST_MARK_BYTES = 1024

_SPACES = {1: b"GRAY", 3: b"RGB ", 4: b"RGB "}
"""Colour spaces of profiles, as their headers name them, by the channels of the pixels."""


def fits(profile: bytes, channels: int) -> bool:
    """Say whether a colour profile is one of pixels of so many channels."""
    return profile[16:20] == _SPACES[channels]


def colour_space(profile: bytes) -> str:
    """Return the colour space that a profile is of, e.g. ``CMYK``."""
    return profile[16:20].decode("ascii", "replace").strip()


def add_profile(file: Path, profile: bytes) -> None:
    """Put a colour profile into a PNG. It has to stand before the pixels: the file is written anew."""
    written = file.with_name(f"{file.name}.icc")
    try:
        with file.open("rb") as source, written.open("wb") as target:
            target.write(source.read(_HEAD_BYTES))
            target.write(_chunk(b"iCCP", b"ICC Profile\0\0" + zlib.compress(profile)))
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(written, file)
    finally:
        written.unlink(missing_ok=True)


def add_mark(file: Path, text: str) -> None:
    """Say in a PNG what made it, as its last words: they are found without reading the pixels."""
    data = _MARK + b"\0" + text.encode("ascii", "backslashreplace")[: _MOST_MARK_BYTES // 2]
    with file.open("r+b") as opened:
        opened.seek(-len(PNG_END), os.SEEK_END)
        opened.write(_chunk(b"tEXt", data) + PNG_END)


def mark_in(file: Path) -> str:
    """Return what :func:`add_mark` wrote; empty where a file has no mark, or cannot be read."""
    try:
        with file.open("rb") as opened:
            opened.seek(-min(_MOST_MARK_BYTES, file.stat().st_size), os.SEEK_END)
            tail = opened.read()
    except OSError:
        return ""
    start = tail.rfind(b"tEXt" + _MARK + b"\0")
    if start < 4:
        return ""
    size = int.from_bytes(tail[start - 4 : start], "big")
    return tail[start + 4 + len(_MARK) + 1 : start + 4 + size].decode("ascii", "replace")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
