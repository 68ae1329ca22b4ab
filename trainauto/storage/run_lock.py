"""Who writes into the folder of a run: one process at a time, whatever machine it is on and however the last one ended.

Each owner makes ``owner_N.json`` under the next number: a file is made whole or not at all, and only once. The maker of
the highest owns the folder, so a dead owner is replaced without removing anything that another may just have made. No
lock of the operating system is taken: not all network file systems have them, and forked workers would inherit them.

An owner is dead if its process is (known by number and start time, where both are of one machine), or if it has not
renewed its file's time of change for :data:`SILENT_S`. Clocks may differ: how old a file looks shortens that, but
:data:`_LEAST_WATCH_BEATS` are always watched. A file dated 1970 was given back. One that a living owner misses was
removed by other programs, and is made again.
"""

import json
import logging
import os
import platform
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from trainauto.core.errors import InputError, Problem, TrainautoError
from trainauto.core.files import read_text
from trainauto.core.json_text import from_json

logger = logging.getLogger(__name__)

BEAT_S = 10.0
"""Seconds between two signs of life."""

SILENT_S = 90.0
"""Silence after which an owner elsewhere is dead: clients of NFS may see a file's time up to a minute late."""

_LEAST_WATCH_BEATS = 3
_POLL_S = 0.5
_AGAIN_S = 0.05  # what another process has just made may be seen a moment later on a network file system
_GIVEN_BACK_BEFORE_S = 1e9
"""Times before 2001 are those of a folder that was given back; some file systems know none before 1980."""

_NAME = re.compile(r"owner_(\d+)\.json")


class RunLockedError(InputError):
    """Another process has the folder."""


@dataclass(frozen=True)
class Owner:
    """A process that writes into a folder.

    Attributes:
        host: name of its machine.
        pid: its number there.
        since: when it took the folder, local time.
        processes: what its number is unique in: this start of this machine, and the container; empty where unknown.
        started: when it was started, in ticks of that machine; empty where unknown.
    """

    host: str
    pid: int
    since: str
    processes: str = ""
    started: str = ""

    @classmethod
    def me(cls) -> "Owner":
        """Return this process."""
        now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        return cls(socket.gethostname(), os.getpid(), now, _processes_here(), (_stat_of(os.getpid()) or ("", ""))[1])

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}" if self.pid else "a process that left no name"

    def is_alive(self) -> bool | None:
        """Say whether the process is there; ``None`` where that cannot be known from here."""
        is_here = self.processes == _processes_here() and (self.processes or self.host == socket.gethostname())
        if os.name != "posix" or self.pid <= 0 or not is_here:
            return None
        try:
            os.kill(self.pid, 0)  # asks whether it is there, and does nothing to it
        except ProcessLookupError:
            return False
        except OSError:
            return None  # it is another person's
        stat = _stat_of(self.pid) if self.processes else None
        # Without a start time the number may have been given to another process since.
        return None if stat is None else stat[0] not in "ZX" and stat[1] == self.started


class RunLock:
    """The right of this process to write into one folder; not taken at first. Use it as a context manager."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._mine = Owner("", 0, "")
        self._pid = 0
        self._looked_s = (0.0, 0.0)
        self._lost_to: Owner | None = None
        self._done = threading.Event()
        self._beating: threading.Thread | None = None

    def take(self, folder: Path) -> None:
        """Take a folder. A process elsewhere that may be dead is watched, for up to :data:`SILENT_S`.

        Raises:
            RunLockedError: another process has it and is alive.
            InputError: nothing can be written there.
        """
        mine = Owner.me()
        try:
            while (file := _made(folder, mine)) is None:
                time.sleep(_AGAIN_S)
        except OSError as error:
            raise InputError(f"{folder} cannot be written to: {error}") from error
        self._file, self._mine, self._pid, self._looked_s = file, mine, os.getpid(), _clocks_s()
        self._beating = threading.Thread(target=self._beat, name="owner of the run", daemon=True)
        self._beating.start()

    def check(self) -> None:
        """Ask whether it is still this process that has the folder; costs nothing but after a long silence.

        Raises:
            TrainautoError: another one took it while this one was silent, in a machine that slept for instance.
        """
        if self._file is None:
            return
        # The process may just have woken up: its next beat comes after the next write.
        if max(now - then for now, then in zip(_clocks_s(), self._looked_s, strict=True)) > 2 * BEAT_S:
            self._look(self._file)
        if self._lost_to is not None:
            raise TrainautoError(
                f"{self._file.parent} was taken over by {self._lost_to}\n"
                f"  This process had given no sign of life for {SILENT_S:.0f} s; it writes nothing more."
            )

    def give_back(self) -> None:
        """Let others have the folder at once; without a lock nothing happens."""
        self._done.set()
        if self._file is None or self._pid != os.getpid():
            return
        if self._beating is not None:
            self._beating.join(BEAT_S)
        if self._lost_to is None:
            with suppress(OSError):  # a time of change needs no room on a full disk
                os.utime(self._file, (0, 0))
        self._file = None

    def __enter__(self) -> "RunLock":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.give_back()

    def _beat(self) -> None:
        file = self._file
        while file is not None and self._lost_to is None and not self._done.wait(BEAT_S):
            self._look(file)

    def _look(self, file: Path) -> None:
        """Give a sign of life, unless another process has the folder."""
        # A file system that does not answer once may do so the next time; so may a memory budget.
        with suppress(OSError, MemoryError):
            newest = _newest(file.parent)
            if newest is None or _number(newest) < _number(file):
                _write_once(file, _text_of(self._mine))
                newest = file
            owner = _read(newest)
            if newest != file or (owner.pid and owner != self._mine):
                self._lost_to = owner
                return
            os.utime(file)
            self._looked_s = _clocks_s()


def _made(folder: Path, mine: Owner) -> Path | None:
    """Try to become the owner of a folder; ``None`` if another process came in between.

    Raises:
        RunLockedError: it has a living owner.
    """
    before = _newest(folder)
    if before is not None and not _is_free(before):
        raise _refusal(folder, _read(before))
    number = _number(before) + 1 if before is not None else 1
    file = folder / f"owner_{number}.json"
    if not _write_once(file, _text_of(mine)):
        return None
    if _newest(folder) != file:  # two others were faster, and the second has removed the first one's
        file.unlink(missing_ok=True)
        return None
    for old in _files(folder):
        if _number(old) < number:
            old.unlink(missing_ok=True)
    return file


def _is_free(file: Path) -> bool:
    """Say whether the owner of a file has gone: by what is known, else by watching it."""
    first = _changed_s(file)
    if first is None or first < _GIVEN_BACK_BEFORE_S:
        return True
    owner = _read(file)
    alive = owner.is_alive()
    if alive is not None:
        return not alive
    left_s = SILENT_S - (_now_in(file.parent) - first)
    # The clock that dated the file may be ahead of this one, or behind, or have been set since.
    left_s = min(max(left_s, _LEAST_WATCH_BEATS * BEAT_S), SILENT_S)
    if left_s > BEAT_S:
        # Not by the logger: what is logged before a run is there is shown much later.
        print(f"looking for up to {left_s:.0f} s whether {owner} is alive", file=sys.stderr, flush=True)
    end = time.monotonic() + left_s
    while time.monotonic() < end:
        time.sleep(_POLL_S)
        if (now := _changed_s(file)) != first:
            return now is None or now < _GIVEN_BACK_BEFORE_S
    return True


def _refusal(folder: Path, owner: Owner) -> RunLockedError:
    stop = f"end it there (Ctrl-C, or kill {owner.pid})" if owner.pid else "end it"
    return RunLockedError(
        Problem(
            f"{folder} is in use by {owner}",
            advice=f"Wait for it or {stop}, then resume; without --auto_resume a run of its own begins.",
        )
    )


def _write_once(file: Path, text: str) -> bool:
    """Make a file with its content, unless it is there; say whether it was made."""
    temporary = file.with_name(f".{file.name}.{uuid4().hex}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        try:
            os.link(temporary, file)
        except FileExistsError:
            return False
        except OSError:  # a file system without links: made at once, filled a moment later
            return _make_and_fill(file, text)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def _make_and_fill(file: Path, text: str) -> bool:
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(text)
    except FileExistsError:
        return False
    return True


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if _NAME.fullmatch(file.name)]


def _number(file: Path) -> int:
    match = _NAME.fullmatch(file.name)
    return int(match[1]) if match else 0


def _newest(folder: Path) -> Path | None:
    return max(_files(folder), key=_number, default=None)


def _read(file: Path) -> Owner:
    try:
        content = from_json(read_text(file))
        return Owner(**{name: type_of(content[name]) for name, type_of in _FIELDS.items()})
    except (OSError, ValueError, KeyError, TypeError):
        return Owner("", 0, "")  # damaged: its time of change alone says whether it is alive


_FIELDS = {"host": str, "pid": int, "since": str, "processes": str, "started": str}


def _text_of(owner: Owner) -> str:
    return json.dumps(asdict(owner), indent=2) + "\n"


def _changed_s(file: Path) -> float | None:
    """Return a file's time of change; ``None`` if it is gone. It is opened, for network file systems then ask anew."""
    try:
        if not file.is_file():  # opening a FIFO waits for ever
            return file.stat().st_mtime
        with file.open("rb") as opened:
            return os.fstat(opened.fileno()).st_mtime
    except FileNotFoundError:
        return None


def _now_in(folder: Path) -> float:
    """Return the time by the clock that dates files in a folder; a server's may differ from this machine's."""
    probe = folder / f".now.{uuid4().hex}.tmp"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _clocks_s() -> tuple[float, float]:
    """Return the time by two clocks: one stands still while the machine sleeps, the other may be set back."""
    return time.monotonic(), time.time()


def _processes_here() -> str:
    """Return what process numbers are unique in: this start of the machine and, in containers, their own numbers."""
    if platform.system() != "Linux":
        return ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _stat_of(pid: int) -> tuple[str, str] | None:
    """Return the state of a process (``Z``: ended) and its start in ticks since the machine's; Linux."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # its name, in brackets, may hold anything
    return fields[0], fields[19]
