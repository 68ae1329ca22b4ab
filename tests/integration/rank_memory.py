"""One rank that steps for real, and the bytes its third step takes, as torch's profiler sees them without any mode.

python rank_memory.py OUT OPTIONS...
"""

import json
import sys
from pathlib import Path

from trainauto.builders.distributed_setup import parallel_of
from trainauto.builders.image_model import build_model, build_network
from trainauto.builders.precision import choose_precision
from trainauto.core.objectives import parameters_of
from trainauto.core.plan import Plan
from trainauto.distributed.communicator import Communicator, init_distributed
from trainauto.engine.optimizer_state import make_optimizer_state
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.traced_training import empty_batch
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.models.base_model import BaseModel
from trainauto.options.load import LoadedOptions, load_options
from trainauto.tasks.sr.data.image_crops import ImageCrops

STEPS = 3  # DistributedDataParallel makes its buckets anew in the second
TIMES = 6  # what a thread of gloo lets go of, the profiler does not see: now and then a copy of all weights stays live


def bytes_of(loaded: LoadedOptions, plan: Plan, ranks: Communicator) -> dict[str, int]:
    made: list[tuple[BaseModel, StepSnapshot]] = []

    def build() -> None:
        parallel = parallel_of(loaded.options, ranks)
        model = build_model(loaded, build_network(loaded), choose_precision(loaded, ranks), parallel=parallel)
        make_optimizer_state(model.optimizers.values())
        if parallel is None:
            ranks.prepare(weight for one in model.objectives() for weight in parameters_of(one))
        made.append((model, StepSnapshot(model.networks.values(), model.device)))

    def step() -> None:
        model, snapshot = made[0]
        batch = empty_batch(plan, ImageCrops(3, loaded.options.scale))
        optimize_parameters(model, batch, StepSettings(max_norm=1e-9), snapshot=snapshot, ranks=ranks)

    held = peak = live = 0
    for call in profiled(build, *[step] * STEPS):
        held = peak = live
        for event in call:
            live += event.size_bytes if event.is_tensor else 0
            peak = max(peak, live)
    return {"held": held, "peak": peak}


def main(out: str, *options: str) -> None:
    with init_distributed("pytorch") as ranks:
        plan = Plan.of(batch_size=2, lq_size=16, micro_batches=2)
        loaded = [load_options(Path(file)) for file in options]
        measured = [[bytes_of(each, plan, ranks) for _ in range(TIMES)] for each in loaded]
    least = [min(times, key=lambda taken: taken["peak"]) for times in measured]
    Path(out).write_text(json.dumps({"plan": plan.to_dict(), "found": least}))


if __name__ == "__main__":
    main(*sys.argv[1:])
