"""What a decoder says of a damaged image while it continues: libjpeg prints a line, and the pixels behind it are wrong.

The line goes to the process's standard error and names no file, so that it is caught there while one image is decoded.
Of damages of 512 bytes and more in the middle of a photograph nearly all are noticed so, of a few lost bytes half: JPEG
has no checksums. PNG and WebP fail to decode instead.
"""

import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch

logger = logging.getLogger(__name__)

JPEG_SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif"})
DAMAGE = ("Corrupt JPEG data", "Premature end of JPEG", "Inconsistent progression")

_BEFORE_THE_END = re.compile(r"(\d+) extraneous bytes before marker 0xd9")

Result = TypeVar("Result")

_STDERR = 2
_MOST_BYTES = 1 << 16


class _Catcher:
    """A nameless file that takes the place of standard error for a moment; one a process, since forks share offsets."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        with tempfile.TemporaryFile(buffering=0) as file:
            self._file = os.dup(file.fileno())  # as long as the process lives
        self.busy = threading.Lock()

    def output_during(self, decode: Callable[[], Result]) -> tuple[Result, bytes]:
        """Decode; return the result and what was printed meanwhile."""
        kept = os.dup(_STDERR)
        try:
            try:
                os.dup2(self._file, _STDERR)
                result = decode()
            finally:
                os.dup2(kept, _STDERR)
        except BaseException:
            os.write(_STDERR, self._taken())  # or the next image would be blamed for it
            raise
        finally:
            os.close(kept)
        return result, self._taken()

    def _taken(self) -> bytes:
        if not os.fstat(self._file).st_size:
            return b""
        os.lseek(self._file, 0, os.SEEK_SET)
        warnings_text = os.read(self._file, _MOST_BYTES)
        os.lseek(self._file, 0, os.SEEK_SET)
        os.ftruncate(self._file, 0)
        return warnings_text


_catcher: _Catcher | None = None


def decode_with_warnings(decode: Callable[[], Result]) -> tuple[Result, str]:
    """Decode an image; return the result and what the decoder says of damage, empty where it says nothing.

    What anybody else prints meanwhile is passed on. Two threads do not listen at once: the second just decodes.
    """
    global _catcher
    if sys.stderr is None:  # closed: its number may be another file's
        return decode(), ""
    try:
        if _catcher is None or _catcher.pid != os.getpid():
            _catcher = _Catcher()
        catcher = _catcher
    except OSError:  # no room for temporary files
        return decode(), ""
    if not catcher.busy.acquire(blocking=False):
        return decode(), ""
    try:
        sys.stderr.flush()
        result, warnings_text = catcher.output_during(decode)
    except OSError:  # without a standard error
        return decode(), ""
    finally:
        catcher.busy.release()
    message, others = "", []
    for line in warnings_text.splitlines(keepends=True):
        if line.startswith(tuple(prefix.encode() for prefix in DAMAGE)):
            message = message or line.decode(errors="replace").strip()
        else:
            others.append(line)
    if others:
        with suppress(OSError):
            os.write(_STDERR, b"".join(others))
    return result, message


def is_padding(encoded: bytes, damage: str) -> bool:
    """Whether all that a decoder found are zeros before the end marker, as some programs and cameras write them.

    Others there may be what is left of pixels after damage.
    """
    match = _BEFORE_THE_END.search(damage)
    if match is None:
        return False
    return bytes(int(match[1])) + b"\xff\xd9" in encoded


def is_listened_to(path: str) -> bool:
    """Whether a decoder may continue over damage in such a file."""
    return Path(path).suffix.lower() in JPEG_SUFFIXES


class _ReportedDamage:
    """Damaged files that this process has read: named once each; those of a worker travel with its next batch."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.pending: list[tuple[str, str]] = []


_reported = _ReportedDamage()


def report_damage(path: str, damage: str) -> None:
    """Name a damaged file in the log, once; in a loader's worker, keep it for the training process to name."""
    if path in _reported.known:
        return
    _reported.known.add(path)
    if torch.utils.data.get_worker_info() is not None:
        _reported.pending.append((path, damage))
    else:
        logger.warning("%s is damaged, its pixels may be wrong from some row on (%s); replace it", path, damage)


def take_pending() -> list[tuple[str, str]]:
    """Return the damaged files that a worker has read and no message has named yet."""
    taken, _reported.pending = _reported.pending, []
    return taken
