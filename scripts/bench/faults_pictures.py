"""Pictures that are none: FIFOs, sockets, devices, folders, damaged files, from the start or in mid-run."""

import os
import random
import signal
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from faults_forks import forked, run
from faults_memory import noting
from faults_tasks import Outcome, trained
from faults_verdicts import (
    BLOCK,
    NOT_MET,
    SURVIVED,
    WRONG,
    Bench,
    Fault,
    Verdict,
    block_of,
    plainly_bad,
    shown,
)

PLACES = {"sr": ("gt", "image_001.png"), "sr, validation": ("val", "image_001.png"), "finetune": ("chats", "")}


def fifo(file: Path) -> None:
    """Make it a FIFO, which blocks those who open it."""
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def unix_socket(file: Path) -> None:
    """Make it a socket."""
    file.unlink(missing_ok=True)
    here = Path.cwd()
    os.chdir(file.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(file.name)
    os.chdir(here)


def endless(file: Path) -> None:
    """Make it a link to a device that never ends."""
    file.unlink(missing_ok=True)
    file.symlink_to("/dev/zero")


def folder(file: Path) -> None:
    """Make it a folder."""
    file.unlink(missing_ok=True)
    file.mkdir()


def gone(file: Path) -> None:
    """Delete it."""
    file.unlink(missing_ok=True)


def leads_nowhere(file: Path) -> None:
    """Make it a link to nothing."""
    file.unlink(missing_ok=True)
    file.symlink_to("nowhere.png")


def leads_to_itself(file: Path) -> None:
    """Make it a link to itself."""
    file.unlink(missing_ok=True)
    file.symlink_to(file.name)


def empty(file: Path) -> None:
    """Leave no byte."""
    file.write_bytes(b"")


def truncated(file: Path) -> None:
    """Leave its first half."""
    os.truncate(file, file.stat().st_size // 2)


def damaged(file: Path) -> None:
    """Change bytes in its middle."""
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(255 - byte for byte in content[middle : middle + 64])
    file.write_bytes(content)


def words(file: Path) -> None:
    """Make it a text."""
    file.write_text("no picture any more\n" * 50)


def bomb(file: Path) -> None:
    """Have its header promise 60000 x 60000 px."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(9))) + chunk(b"IEND", b""))


BECOMES: Mapping[str, Callable[[Path], None]] = {
    "FIFO": fifo,
    "socket": unix_socket,
    "link to /dev/zero": endless,
    "folder": folder,
    "gone": gone,
    "link to nothing": leads_nowhere,
    "link to itself": leads_to_itself,
    "empty": empty,
    "truncated": truncated,
    "damaged": damaged,
    "a text": words,
    "60000 x 60000 px": bomb,
}


def picture_of(task: str) -> Path:
    """Return the picture of a task that becomes something else, relative to its folder."""
    where, name = PLACES[task]
    return Path(where, name) if name else sorted(Path(where).glob("*.png"))[0]


def changed_after(task: str, becomes: str, step: int) -> int:
    """Train a task, one picture of which becomes something else after a step; 0 is before the start."""
    from trainauto.engine import loop

    take_in = loop.take_in
    file = picture_of(task).absolute()
    met = noting(partial(BECOMES[becomes], file))
    if not step:
        met()

    def taken_in(run: object, record: object) -> None:
        take_in(run, record)
        if record.step == step:
            met()

    loop.take_in = taken_in
    return trained(task.split(",", maxsplit=1)[0])


NAMED = r"left out|cannot be read|is damaged|not decode|no file|no image|no picture"


def _meet(bench: Bench, *, task: str, becomes: str, step: int) -> Verdict:
    plain = task.split(",", maxsplit=1)[0]
    place = bench.begin(plain)
    here = Path.cwd()
    os.chdir(place)
    name = picture_of(task).name
    os.chdir(here)
    ended = run(partial(changed_after, task, becomes, step), place, "first")
    bad = plainly_bad(ended)
    if bad is not None:
        return bad
    if ended.code:
        block, flaw = block_of(ended)
        flaw = flaw or ("" if name in block else f"does not name {name}")
        return Verdict(WRONG if flaw else BLOCK, shown(block), flaw)
    if not (place / ".met").exists():
        return Verdict(NOT_MET)
    is_equal = Outcome.of(place).weights == bench.undisturbed(plain).weights
    if name in ended.words:
        return Verdict(SURVIVED, shown(ended.words[max(0, ended.words.index(name) - 60) :]))
    if is_equal:  # it was not read any more
        return Verdict(SURVIVED)
    if not step and becomes in ("folder", "gone"):  # the set has one picture less, as a person who did that expects
        return Verdict(SURVIVED, shown(ended.words[ended.words.index("data ") :]))
    return Verdict(WRONG, shown(ended.said[-160:]), "other weights, and the picture is not named")


def pictures(seed: int) -> Iterator[Fault]:
    """Yield pictures that are none, at the start and in mid-run."""
    numbers = random.Random(f"{seed} pictures")
    for task in PLACES:
        for number, becomes in enumerate(BECOMES):
            if task != "sr" and number % 3:
                continue
            for step in (0, numbers.randint(2, 5)):
                when = f"after step {step}" if step else "from the start"
                kind = "pictures: in mid-run" if step else "pictures: from the start"
                yield Fault(kind, f"{task}, {becomes} {when}", partial(_meet, task=task, becomes=becomes, step=step))


def _stopped(task: str) -> int:
    from trainauto.engine import loop

    take_in, file = loop.take_in, picture_of(task).absolute()
    met = noting(partial(fifo, file))

    def taken_in(run: object, record: object) -> None:
        take_in(run, record)
        if record.step == 2:
            met()
            threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM)).start()

    loop.take_in = taken_in
    return trained(task)


def _meet_stopped(bench: Bench, *, task: str) -> Verdict:
    place = bench.begin(task)
    started = forked(partial(_stopped, task), place, "first")
    ended = started.ended()
    bad = plainly_bad(ended)
    if bad is not None and not (ended.code == -signal.SIGTERM and ("completed" in ended.said or ended.block.strip())):
        return bad  # a run that has said its last word may still be ending when the signal comes
    return Verdict(BLOCK if ended.code else SURVIVED, shown(ended.block or ended.words[-160:]))


def faults(base: Path, seed: int) -> Iterator[Fault]:
    """Yield all of this subject."""
    del base
    yield from pictures(seed)
    for task in ("sr", "finetune"):
        yield Fault("pictures: in mid-run", f"{task}, FIFO and SIGTERM", partial(_meet_stopped, task=task))
