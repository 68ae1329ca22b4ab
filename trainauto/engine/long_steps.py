"""A word where the first step takes long: on a CPU, an option file that was written for a card trains for months."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from trainauto.core.plan import BATCH_SIZE
from trainauto.engine.run import Run

logger = logging.getLogger(__name__)

LONG_S = 10.0

OPTIONS = {BATCH_SIZE: "batch_size_per_gpu"}
"""Option that sets a value of the plan, where it is called otherwise there."""


def advice_for(run: Run) -> str:
    """Return what would make the steps of a run shorter on a CPU, of what it does not have already."""
    plan, network, small = run.loader.plan, run.summary.network.partition(" ")[0], run.loader.dataset.small_run
    sizes_first = sorted(small.plan.values, key=lambda pair: pair[0] == BATCH_SIZE) if small is not None else []
    smaller = [
        *([f"a small network (type: {small.network})"] if small is not None and network != small.network else []),
        *(f"{OPTIONS.get(name, name)} {value}" for name, value in sizes_first if name in plan and plan[name] > value),
        *(["no use_amp"] if run.summary.precision != "fp32" else []),
    ]
    if not smaller and small is None:
        names = " and ".join(axis.name for axis in run.axes)
        return f"a smaller network takes less{f', and so do smaller values of {names}' if names else ''}"
    if not smaller:
        return "plan and kind of network are small already; fewer features or layers of it take less"
    return (
        f"on a CPU take {', '.join(smaller[:-1])} and {smaller[-1]}" if smaller[1:] else f"on a CPU take {smaller[0]}"
    )


@contextmanager
def warning_if_long(run: Run) -> Iterator[None]:
    """Say while the first step runs on a CPU that it takes long, and afterwards how long it took, with advice.

    Where a budget is in force, plans were measured before, which shows that it is running; a thread would count.
    """
    is_first = run.progress.steps == 0 and run.ranks.is_first and run.model.device.type == "cpu"
    is_first = is_first and run.model.compilation() is None  # compiling takes long, too
    if not is_first or run.budget_bytes is not None:
        yield
        return
    start = time.perf_counter()
    timer = Timer(LONG_S, logger.info, ["the first step is still running after %.0f s", LONG_S])
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
