"""A word where the first step takes long: on a CPU, an option file that was written for a card trains for months."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from trainauto.core.plan import LQ_SIZE
from trainauto.engine.run import Run

logger = logging.getLogger(__name__)

LONG_S = 10.0

SMALL_NETWORK, SMALL_LQ_SIZE, SMALL_BATCH = "compact", 32, 4
"""What trains on two cores: a step of these takes some tenths of a second."""


def advice_for(run: Run) -> str:
    """Return what would make the steps of a run shorter on a CPU, of what it does not have already."""
    plan, network = run.loader.plan, run.summary.network.partition(" ")[0]
    smaller = [
        *([] if network == SMALL_NETWORK else [f"a small network (type: {SMALL_NETWORK})"]),
        *([f"lq_size {SMALL_LQ_SIZE}"] if LQ_SIZE in plan and plan[LQ_SIZE] > SMALL_LQ_SIZE else []),
        *([f"batch_size_per_gpu {SMALL_BATCH}"] if plan.batch_size > SMALL_BATCH else []),
        *(["no use_amp"] if run.summary.precision != "fp32" else []),
    ]
    if not smaller:
        return "crop, batch and kind of network are small already; fewer features or layers of it take less"
    return (
        f"on a CPU take {', '.join(smaller[:-1])} and {smaller[-1]}" if smaller[1:] else f"on a CPU take {smaller[0]}"
    )


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
        logger.warning("the first step took %.0f s: %s", taken_s, advice_for(run))
