"""What the operating system says where a file cannot be read or written, and what to do about it."""

import errno
import os
import re

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A disk, or a person's share of it, is full."""

_REMEDIES = {
    "Make room": FULL,
    "Make the disk writable again": {errno.EROFS},
    "Give this user the right to read and write there": {errno.EACCES, errno.EPERM},
    "Check the disk or network drive that fails": {errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE},
    "Allow more open files (ulimit -n 65536) or use fewer workers": {errno.EMFILE, errno.ENFILE},
    "Put back what was moved, renamed or deleted": {errno.ENOENT, errno.ENOTDIR},
    "Move what is in its place": {errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY},
}
_BY_NUMBER = {number: remedy for remedy, numbers in _REMEDIES.items() for number in numbers}

_OF_RUST = re.compile(r"\bos error (\d+)\b")
"""What libraries written in Rust say, safetensors among them."""


def errno_of(error: BaseException | None) -> int | None:
    """Return the number of the system's error that an error is, or comes from; ``None`` where there is none."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        if (said := _OF_RUST.search(str(error))) is not None:
            return int(said[1])
        error = error.__cause__ or error.__context__  # torch says something of its own
    return None


def remedy(number: int | None) -> str:
    """Return what to do about an error of the system, without a full stop; empty for errors without one."""
    return _BY_NUMBER.get(number or 0, "")


def reason_of(number: int | None) -> str:
    """Return an error of the system in its own words."""
    return os.strerror(number or 0)
