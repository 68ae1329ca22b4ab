"""Steps of one rank whose weights are spread over several, beside their traces, on PyTorch's real CUDA allocator.

    python sharded_steps.py RANKS FILE PLAN [FILE PLAN ...]

FILE is an option file with fully_shard, PLAN its plan as JSON. Torch's fake process group stands for the other ranks:
collectives take their memory on their own streams and send nothing. Prints JSON by file: what was predicted and what
three steps took. Segments are as PYTORCH_CUDA_ALLOC_CONF says.
"""

import gc
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainauto.core.plan import Plan
from trainauto.engine.optimizer_state import make_optimizer_state
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.traced_training import FakeTraining
from trainauto.forecast import traced_run
from trainauto.forecast.task import ready_task
from trainauto.memory.cuda_allocator.allocator import STREAM_SHIFT
from trainauto.memory.cuda_allocator.segments import uses_expandable_segments
from trainauto.models.base_model import BaseModel
from trainauto.options.load import load_options

STEPS = 3
DEVICE = torch.device("cuda", 0)


class RealTraining:
    """Takes what traces build runs from, and builds one of real tensors."""

    def __init__(self, build: Callable[[Any], BaseModel], batch_of: Any, **_of_traces: Any) -> None:
        self.build, self.batch_of = build, batch_of


def main(ranks: int, *files: str) -> None:
    """Compare each file's prediction with its steps."""
    warnings.filterwarnings("ignore", category=UserWarning)
    expandable = uses_expandable_segments(DEVICE)
    found = {}
    for file, plan in zip(files[::2], map(json.loads, files[1::2]), strict=True):
        run = of(file, ranks)
        trace = run.trace(Plan.from_dict(plan))
        predicted = {"live": trace.peak_bytes, "reserved": trace.reserved_bytes(expandable=expandable)}
        streams = len({ident >> STREAM_SHIFT for ident, size_bytes in trace.events if size_bytes})
        del run
        found[file] = {"predicted": predicted, "streams": streams, "real": stepped(file, plan, ranks)}
    print(json.dumps(found))


def of(file: str, ranks: int) -> Any:
    """Return the training of an option file as its task builds it."""
    loaded = load_options(Path(file))
    return ready_task(loaded).fake(loaded, like_cuda=True, world_size=ranks, known={})


def stepped(file: str, plan: dict[str, Any], ranks: int) -> dict[str, int]:
    """Return what the allocator had at most in steps on real tensors."""
    traced_run.FakeTraining = RealTraining  # type: ignore[assignment, misc]
    traced_run.FakeRun.__init__ = RealTraining.__init__  # type: ignore[assignment, method-assign]
    try:
        training = of(file, ranks)
    finally:
        traced_run.FakeTraining = FakeTraining  # type: ignore[misc]
        del traced_run.FakeRun.__init__
    gc.collect()
    torch.cuda.empty_cache()
    model = training.build(None)
    torch.cuda.reset_peak_memory_stats(DEVICE)
    make_optimizer_state(model.optimizers.values())
    snapshot = StepSnapshot(model.networks.values(), model.device)
    for _ in range(STEPS):
        optimize_parameters(model, training.batch_of(Plan.from_dict(plan)), StepSettings(), snapshot=snapshot)
    statistics = torch.cuda.memory_stats(DEVICE)
    taken = {
        "live": statistics["requested_bytes.all.peak"],
        "reserved": statistics["reserved_bytes.all.peak"],
    }
    del model, snapshot
    gc.collect()
    return taken


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
