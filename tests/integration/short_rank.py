"""A run of any task in which one rank's memory is short, in a process of its own.

python -m tests.integration.short_rank OPTIONS OUT

After some steps with room, rank 1 gets a budget drawn anew for each step, in which its part fits at times and at times
does not. The other ranks always have room.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from trainauto.core.process import set_environment

set_environment()

from trainauto.build import build_run  # noqa: E402
from trainauto.core.batch import Batch  # noqa: E402
from trainauto.core.records import StepRecord  # noqa: E402
from trainauto.distributed.communicator import init_distributed  # noqa: E402
from trainauto.engine import loop, step  # noqa: E402
from trainauto.engine.training import Training  # noqa: E402
from trainauto.options.load import load_options  # noqa: E402

MIB = 1024**2
ROOMY_STEPS = 6
SHORT = (0.2, 0.8)
"""Budgets of the short rank, as shares of the usual peak of a step."""


def main(options: str, out: str) -> None:
    pick, peaks, seen = random.Random(1), list[int](), Counter[str]()
    trained, computed = loop.train_step, step.compute_gradients
    with init_distributed("pytorch") as ranks, build_run(load_options(Path(options)), ranks=ranks) as run:

        def watched(of: Training, batch: Batch, data_seconds: float) -> StepRecord | None:
            is_short = ranks.rank == 1 and len(peaks) >= ROOMY_STEPS
            of.meter.set_budget(int(median(peaks) * pick.uniform(*SHORT)) if is_short else 512 * MIB)
            record = trained(of, batch, data_seconds)
            of.loader.update_plan(run.first_plan)  # what has failed would come in pieces from now on
            if record is None:
                seen["given back"] += 1
            elif record.peak is not None and len(peaks) < ROOMY_STEPS:
                peaks.append(record.peak.allocated)
            return record

        def counted(*given: Any, **named: Any) -> Any:
            found = computed(*given, **named)
            seen["in pieces"] += bool(getattr(found, "failures", ()))
            return found

        loop.train_step, step.compute_gradients = watched, counted
        loop.train(run)
        Path(out).write_text(json.dumps({**seen, "steps": run.progress.steps, "peak": max(peaks)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
