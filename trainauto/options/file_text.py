"""The text of an option file, whatever is at its path."""

import os
import stat
from difflib import get_close_matches
from pathlib import Path

from trainauto.core.errors import InputError, Place, Problem
from trainauto.options.source_locations import Source, printable

LARGEST_FILE_BYTES = 2**20


def read_text(path: Path) -> str:
    """Return the text of the UTF-8 file at ``path``, without a byte order mark.

    Raises:
        InputError: it cannot be read, is larger than any option file, or is not UTF-8.
    """
    file = printable(str(path))
    return _decoded(_bytes_of(path, file), file)


def _bytes_of(path: Path, file: str) -> bytes:
    try:
        if stat.S_ISFIFO(path.lstat().st_mode):  # opening it may block for ever; /dev/fd/63 of a shell is a link
            raise InputError(Problem("this is a pipe", Place(file), "Name an option file."))
        with path.open("rb") as stream:
            data = stream.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        raise InputError(Problem("there is no such file", Place(file), _similar_files(path))) from None
    except IsADirectoryError:
        raise InputError(Problem("this is a folder", Place(file), "Name an option file in it.")) from None
    except (OSError, ValueError) as error:
        # ValueError: a name that no file can have, such as one with a zero character.
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise InputError(Problem(f"the file cannot be read: {reason}", Place(file))) from None
    if len(data) > LARGEST_FILE_BYTES:
        message = "this is larger than 1 MiB, too large for an option file"
        raise InputError(Problem(message, Place(file), "Name the YAML file with the options of the run."))
    return data


def _similar_files(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix.lower() in (".yml", ".yaml")]
    except OSError:
        return f"The folder {printable(str(path.parent))} cannot be read either."
    # Without the suffix, which all have in common.
    by_stem = {Path(name).stem: name for name in names}
    matches = get_close_matches(path.stem, by_stem, n=1)
    return (
        f"Did you mean '{printable(by_stem[matches[0]])}'?"
        if matches
        else "Check the path; it is relative to the working directory."
    )


def _decoded(data: bytes, file: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(Problem("this file is UTF-16", Place(file), "Save it as UTF-8."))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # With a byte order mark, the error counts from behind it.
        before = data.removeprefix(b"\xef\xbb\xbf")
        place = Source(file, before.decode("utf-8", errors="replace")).place(
            len(before[: error.start].decode("utf-8", errors="replace"))
        )
        message = f"the byte 0x{before[error.start]:02x} is not UTF-8"
        raise InputError(Problem(message, place, "Save the file as UTF-8.")) from None
