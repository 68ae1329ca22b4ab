"""What is known of each image and done with it: kept in a file, so that a killed command continues."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import read_text, write_text_atomically
from trainauto.core.json_text import from_json

if sys.platform != "win32":
    import fcntl

REPORT, JOURNAL = "report.json", ".journal.jsonl"
LOCK_WAIT_S = 5.0
"""Workers of a command that was killed leave within this time."""


@dataclass(frozen=True)
class Entry:
    """One image.

    Attributes:
        name: of its tiles, without their numbers.
        source: its file, without links.
        size_bytes: of the file.
        mtime_ns: its time of change.
        height_px: of the upright image.
        width_px: likewise.
        bits: of a sample.
        remarks: what it was before it became RGB.
        hash: perceptual hash, 16 hexadecimal digits.
        tiles: detail and blockiness of each tile, in the order of their numbers.
        damage: why it cannot be used; empty otherwise.
        written: numbers of the tiles that are written or were about to be.
        is_written: whether all of these are.
    """

    name: str
    source: str
    size_bytes: int
    mtime_ns: int
    height_px: int = 0
    width_px: int = 0
    bits: int = 0
    remarks: Sequence[str] = field(default_factory=list)
    hash: str = ""
    tiles: Sequence[Sequence[float]] = field(default_factory=list)
    damage: str = ""
    written: Sequence[int] = field(default_factory=list)
    is_written: bool = False

    def is_of(self, file: Path) -> bool:
        """Whether the file is the one that was looked at, unchanged."""
        status = file.stat()
        return (str(file), status.st_size, status.st_mtime_ns) == (self.source, self.size_bytes, self.mtime_ns)


class Journal:
    """The entries of a folder; a context manager that keeps other processes out of it.

    While work goes on, lines are appended to a hidden file; :meth:`finish` puts all of them into the report and removes
    that file. What a kill leaves of a last line is passed over.

    Attributes:
        settings: what the entries were made with; empty in a new folder.
        entries: by name.
    """

    def __init__(self, folder: Path) -> None:
        self.settings: dict[str, Any] = {}
        self.entries: dict[str, Entry] = {}
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._lock: int | None = None

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder has entries."""
        return any((folder / name).is_file() for name in (REPORT, JOURNAL))

    def __enter__(self) -> "Journal":
        """Take the folder, which is made where there is none.

        Raises:
            InputError: another process has it, or its report is not one of this version.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if sys.platform != "win32":
            self._lock = _locked(self._folder)
        try:
            self._read()
            self._file = (self._folder / JOURNAL).open("ab")
            self._file.write(b"\n")  # after what a kill may have left of a line
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._lock is not None:
            os.close(self._lock)

    def _read(self) -> None:
        try:
            report = from_json(read_text(self._folder / REPORT))
            self.settings = report["settings"]
            self._take(report["images"])
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as error:
            what = f"{self._folder / REPORT} is not as prepare wrote it ({type(error).__name__}: {error})"
            raise InputError(Problem(what, advice="Name another folder, or remove this one.")) from error
        journal = self._folder / JOURNAL
        for line in journal.read_bytes().splitlines() if journal.is_file() else ():
            with suppress(ValueError):
                said = from_json(line)
                if "settings" in said:
                    self.settings, self.entries = said["settings"], {}
                    self._take(said["images"])
                else:
                    self._take([said])

    def _take(self, images: Sequence[Mapping[str, Any]]) -> None:
        for image in images:
            entry = Entry(**{one.name: image[one.name] for one in fields(Entry)})
            self.entries[entry.name] = entry

    def begin(self, settings: dict[str, Any], entries: Mapping[str, Entry]) -> None:
        """Go on with other settings and entries than those that were read."""
        self.settings, self.entries = settings, dict(entries)
        self._append({"settings": settings, "images": [asdict(entry) for entry in entries.values()]})

    def note(self, entry: Entry) -> None:
        """Keep what is known of an image now."""
        self.entries[entry.name] = entry
        self._append(asdict(entry))

    def _append(self, said: Mapping[str, Any]) -> None:
        if self._file is None:
            raise ValueError("the journal is not open")
        self._file.write(json.dumps(said).encode() + b"\n")
        self._file.flush()

    def finish(self, facts: Mapping[str, Any], dropped: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the report, an image a line, and remove the file of lines.

        Args:
            facts: what else the report says.
            dropped: what it says of each image beside the entry, by name.
        """
        images = [{**asdict(self.entries[name]), **dropped[name]} for name in sorted(self.entries)]
        lines = ",\n".join(f"  {json.dumps(image)}" for image in images)
        head = json.dumps({"settings": self.settings, **facts}, indent=1)[1:-2]
        write_text_atomically(self._folder / REPORT, f'{{{head},\n "images": [\n{lines}\n ]\n}}\n')
        (self._folder / JOURNAL).unlink()


def begun(entry: Entry, tiles: Sequence[int]) -> Entry:
    """Return what is known of an image before these tiles of it are written."""
    return replace(entry, written=sorted({*entry.written, *tiles}), is_written=False)


def ended(entry: Entry, tiles: Sequence[int]) -> Entry:
    """Return what is known of an image once these tiles of it are written, and no others are left."""
    return replace(entry, written=list(tiles), is_written=bool(tiles))


def _locked(folder: Path) -> int:
    """Take a folder for this process and the workers that it forks; return what has to be closed.

    Raises:
        InputError: another process has it.
    """
    handle = os.open(folder, os.O_RDONLY)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(handle)
                advice = "Wait until it has ended, or name another folder."
                raise InputError(Problem(f"another process is preparing {folder}", advice=advice)) from None
            time.sleep(0.1)
        except OSError:  # a file system without locks
            return handle
        else:
            return handle
