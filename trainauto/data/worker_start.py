"""What a worker process of a loader does first."""

import signal
from types import FrameType

import cv2

from trainauto.core.process import limit_private_memory


def start_worker(outlives_sigterm: bool, _worker: int) -> None:
    """Make a process that was just started a worker: it is interrupted by the run alone.

    Args:
        outlives_sigterm: ignore the first SIGTERM, and SIGHUP.
    """
    # A memory budget is the training process's; workers would inherit it.
    limit_private_memory(None)
    # OpenCV's threads would multiply with the workers, and its pool does not survive a fork.
    cv2.setNumThreads(0)
    # Ctrl-C, a scheduler's SIGTERM and a closed terminal's SIGHUP reach the whole group; the run needs its workers to
    # finish the step. The second SIGTERM is the pool's own, for a worker that does not end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if outlives_sigterm:
        signal.signal(signal.SIGTERM, _ignore_once)
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _ignore_once(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
