"""One rank that steps for real, and the bytes a later step takes, as torch's profiler sees them without any mode.

python rank_memory.py OUT FILES

FILES is JSON: option files with the plan of each. Runs are built as traces build them, of tensors that have data.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.acceptance import ACCEPTANCE
from trainauto.builders.distributed_setup import parallel_of
from trainauto.core.objectives import parameters_of
from trainauto.core.plan import Plan
from trainauto.distributed.communicator import Communicator, init_distributed
from trainauto.engine.optimizer_state import make_optimizer_state
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.traced_training import ALWAYS_CLIP
from trainauto.forecast import traced_run
from trainauto.forecast.task import ready_task
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.memory.tracing.storage_tracker import tensors_of
from trainauto.models.base_model import BaseModel
from trainauto.options.load import load_options

SETTLED = 2  # DistributedDataParallel makes its buckets anew in the second step
STEPS = 4
FEWEST, MOST, ALIKE = (3, 8, 2) if ACCEPTANCE else (2, 6, 2)
"""How often a case is built and measured: until so many builds agree upon the least.

Sometimes a thread of gloo frees a tensor where the profiler does not look, so that real bytes are too many."""


class RealTraining:
    """Takes what traces build runs from, and builds one of real tensors."""

    def __init__(self, build: Callable[[Any], BaseModel], batch_of: Any, *, clips: bool, **_of_traces: Any) -> None:
        self.build, self.batch_of, self.clips = build, batch_of, clips


def bytes_of(training: RealTraining, plan: Plan, ranks: Communicator, *, sums: bool) -> tuple[int, int, int]:
    """Return the least that is held between steps, by how much a step rises above it, and what the model holds."""
    made: list[tuple[BaseModel, StepSnapshot]] = []

    def build() -> None:
        model = training.build(None)
        make_optimizer_state(model.optimizers.values())
        if sums:
            ranks.prepare(weight for one in model.objectives() for weight in parameters_of(one))
        made.append((model, StepSnapshot(model.networks.values(), model.device)))

    def step() -> None:
        model, snapshot = made[0]
        settings = StepSettings(max_norm=ALWAYS_CLIP if training.clips else None)
        optimize_parameters(model, training.batch_of(plan), settings, snapshot=snapshot, ranks=ranks)

    live, held, rises = 0, [], []
    for call in profiled(build, *[step] * STEPS):
        held.append(live)
        peak = live
        for event in call:
            live += event.size_bytes if event.is_tensor else 0
            peak = max(peak, live)
        rises.append(peak - held[-1])
    return min(held[1 + SETTLED :]), min(rises[1 + SETTLED :]), own_bytes(made[0][0])


def too_few(times: list[tuple[int, int, int]]) -> bool:
    """Return whether another build is to be measured."""
    return len(times) < FEWEST or (len(times) < MOST and times.count(min(times)) < ALIKE)


def own_bytes(model: BaseModel) -> int:
    """Return what weights, gradients, averages and optimizers of a rank hold, each storage once."""
    averages = [average.network for average in model.averages.values()]
    held = tensors_of([*model.networks.values(), *averages, *model.optimizers.values()])
    storages = (getattr(tensor, "_local_tensor", tensor).untyped_storage() for tensor in held)
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def main(out: str, files: str) -> None:
    found = {}
    traced_run.FakeTraining = RealTraining  # type: ignore[assignment, misc]
    traced_run.FakeRun.__init__ = RealTraining.__init__  # type: ignore[assignment, method-assign]
    with init_distributed("pytorch") as ranks:
        for file, plan in json.loads(files).items():
            loaded = load_options(Path(file))
            parallel = parallel_of(loaded.options, ranks)
            traced_run.overlaps_in_trace = lambda _chosen, _ranks, parallel=parallel: parallel  # type: ignore[misc]
            of_task: Any = ready_task(loaded).fake(loaded, like_cuda=False, world_size=ranks.world_size, known={})
            times: list[tuple[int, int, int]] = []
            while ranks.broadcast_object(partial(too_few, times)):
                times.append(bytes_of(of_task, Plan.from_dict(plan), ranks, sums=parallel is None))
            held, rise, own = (min(values) for values in zip(*times, strict=True))
            found[file] = {"held": held, "peak": held + rise, "rise": rise, "own": own}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
