"""A word where the first step takes long: on a CPU, an option file that was written for a card trains for months."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from trainauto.engine.run import Run

logger = logging.getLogger(__name__)

LONG_S = 10.0

ADVICE = "on a CPU take a small network (type: compact), lq_size 32, batch_size_per_gpu 4, and no use_amp"


@contextmanager
def warning_if_long(run: Run) -> Iterator[None]:
    """Say while the first step runs on a CPU that it takes long, and afterwards how long it took, with advice.

    Where a budget is in force, plans were measured before, which shows that it is running; a thread would count.
    """
    is_first = run.progress.steps == 0 and run.ranks.is_first and run.model.device.type == "cpu"
    is_first = is_first and run.model.compiled_graphs() is None  # compiling takes long, too
    if not is_first or run.budget_bytes is not None:
        yield
        return
    start = time.perf_counter()
    timer = Timer(LONG_S, logger.info, ["the first step is still running, after %.0f s", LONG_S])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    taken_s = time.perf_counter() - start
    if taken_s > LONG_S:
        logger.warning("the first step took %.0f s: %s", taken_s, ADVICE)
