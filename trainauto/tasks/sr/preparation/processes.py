"""One function for many images, in several processes that end with the one that started them."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

from trainauto.core.errors import InputError, Problem
from trainauto.data.worker_start import start_worker

Result = TypeVar("Result")


def in_processes(work: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], workers: int) -> Iterator[Result]:
    """Yield ``work(*task)`` of each task as soon as it is there, in any order.

    Each process works on one task at a time. With one worker, this process does.

    Raises:
        InputError: one of these processes was killed.
    """
    if workers == 1 or len(tasks) < 2:
        for task in tasks:
            yield work(*task)
        return
    # Forked where that is usual: torch need not be loaded anew.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context, initializer=_begin)
    try:
        for future in as_completed([pool.submit(work, *task) for task in tasks]):
            yield future.result()
    except BrokenProcessPool as error:
        advice = "Memory may have run out: the same command with fewer --workers continues."
        raise InputError(Problem("a process that works on images was killed", advice=advice)) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    start_worker(False, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing has to be finished: all that is written is whole
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Leave once the process that started this one was killed, so that the command can be started again at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
