"""A lock between processes that the operating system releases when its holders end, however they end."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.2


@contextlib.contextmanager
def locked(path: Path, waiting_for: str) -> Iterator[int]:
    """Hold the lock on a file, waiting for it if need be; yields its descriptor, to be shared with children."""
    with path.open("a") as file:
        has_said = False
        while not try_lock(file.fileno()):
            if not has_said:
                print(f"environment: waiting for {waiting_for}", flush=True)
                has_said = True
            time.sleep(POLL_S)
        yield file.fileno()  # closing the file releases the lock


def try_lock(fd: int) -> bool:
    """Take the lock unless another process has it; a file system without locks counts as taken."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # flock says the first, msvcrt the second
        return False
    except OSError:
        return True
    return True
