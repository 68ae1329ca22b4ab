"""Files that whole lines are appended to: a kill loses the line it falls into and no other."""

import errno
import os
from pathlib import Path


class LineFile:
    """A file that whole lines are added to, each in one write; half a one that a kill has left is ended first.

    Args:
        path: of the file; it is made where it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._before = b"" if _ends_with_a_line(path) else b"\n"
        # O_BINARY exists on Windows only, where text mode would change the newlines.
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)

    def append(self, text: bytes) -> None:
        """Add whole lines.

        Raises:
            OSError: they cannot be written; as a rule nothing was added.
        """
        text = self._before + text
        written_bytes = os.write(self._handle, text)
        if written_bytes != len(text):
            # Half a line would spoil the next one.
            os.ftruncate(self._handle, os.fstat(self._handle).st_size - written_bytes)
            raise OSError(errno.ENOSPC, f"only {written_bytes} of {len(text)} bytes could be written")
        self._before = b""

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)


def _ends_with_a_line(path: Path) -> bool:
    """Say whether a file ends with a whole line, or is empty: half of one is left where a disk takes nothing back."""
    try:
        with path.open("rb") as file:
            if not file.seek(0, os.SEEK_END):
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True


def append_lines(path: Path, text: bytes) -> None:
    """Add whole lines to a file that is kept open no longer.

    Raises:
        OSError: they cannot be written; as a rule nothing was added.
    """
    file = LineFile(path)
    try:
        file.append(text)
    finally:
        file.close()
