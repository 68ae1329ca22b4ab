"""Worker processes of a loader that end by themselves, and what is said of it."""

import errno
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from trainauto.core.errors import TrainautoError
from trainauto.core.system_errors import errno_of, reason_of, remedy

WAIT_S = 1.0
"""How long a worker whose connection broke may take to end."""

_ADVICE = {
    "SIGKILL": "The system's out-of-memory killer did it, perhaps: use fewer workers or smaller crops.",
    "SIGBUS": "Shared memory (/dev/shm) is full, as a rule: enlarge it, or use fewer workers or smaller crops.",
}
_FILE_HANDLES_MISSING = "ancdata"
"""What Python says where it has no room for an open file that a worker hands over."""


class WorkersFailedError(TrainautoError):
    """No more samples come from the workers: one was killed or crashed, or what it made could not be taken over."""


@contextmanager
def deaths_noted_later() -> Iterator[None]:
    """Start workers inside, without torch's handler of SIGCHLD.

    It raises wherever the process is when a worker dies: in the middle of a step, of a checkpoint, of a log. The caller
    that waits for samples notices as well.
    """
    if not hasattr(signal, "SIGCHLD") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if before is not None:  # one that Python did not set cannot be put back
            signal.signal(signal.SIGCHLD, before)


def failure_of(workers: object, error: Exception | None = None) -> WorkersFailedError | None:
    """Return what has become of workers that make no more samples; ``None`` where they are well.

    Args:
        workers: torch's iterator of batches, which asks by itself only after five seconds without one.
        error: what it raised.
    """
    processes = getattr(workers, "_workers", ())
    if isinstance(error, EOFError | OSError):  # a connection broke: who held the other end is ending
        for process in processes:
            process.join(WAIT_S / len(processes))
    for code in (process.exitcode for process in processes):
        if code is not None:
            return WorkersFailedError(_death_in_words(code))
    number = errno.EMFILE if _FILE_HANDLES_MISSING in str(error) else errno_of(error)
    if processes and number in {errno.EMFILE, errno.ENFILE}:
        return WorkersFailedError(f"workers cannot hand over samples: {reason_of(number)}\n  {remedy(number)}.")
    return None


def _death_in_words(code: int) -> str:
    if code >= 0:
        return (
            f"a worker that loads samples ended with exit code {code}\n"
            "  Code that reads samples ended it, perhaps: without workers its error appears here."
        )
    name = signal.Signals(-code).name
    what = "was killed" if name == "SIGKILL" else "was ended"
    advice = _ADVICE.get(
        name, "A library that it loads samples with crashed, perhaps: without workers it may say more."
    )
    return f"a worker that loads samples {what} ({name})\n  {advice}"
