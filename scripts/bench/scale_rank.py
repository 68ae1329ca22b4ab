"""One rank of scripts/bench/scale.py: what it times, into a file of JSON.

python scripts/bench/scale_rank.py WHAT OUT [JSON OF ARGUMENTS]
"""

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainauto.build import build_run
from trainauto.core.batch import Batch
from trainauto.core.objectives import parameters_of
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.units import MIB
from trainauto.distributed.communicator import (
    SINGLE_PROCESS,
    SLOT_BYTES,
    Communicator,
    TorchCommunicator,
    init_distributed,
)
from trainauto.engine.loop import train
from trainauto.engine.random_state import packed_state
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import optimize_parameters
from trainauto.models import SRModel
from trainauto.models.parallel import overlapped
from trainauto.optim.precision import Precision
from trainauto.options.load import load_options
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.data.image_crops import ImageCrops
from trainauto.tasks.sr.losses.pixel_loss import L1Loss

QUICKSTART = Path(__file__).resolve().parents[2] / "options/train/quickstart.yml"
WEIGHTS = 100
STEP_RECORD: dict[str, Any] = {
    "samples": 8,
    "extent": 48,
    "tokens": 0,
    "images": 8,
    "units": 18432,
    "losses": {"l_g_l1loss": 0.0312345678901234},
    "seconds": [0.000123456789, 0.312345678901],
    "peak": {"allocated": 123456789, "reserved": None, "limit": 234567890, "alloc_retries": 0, "device_used": None},
    "ooms": 0,
    "pieces": {},
    "failures": [],
    "signal": 0,
}
"""What a rank tells at the end of a step: some 340 bytes."""

NETWORKS: dict[str, tuple[dict[str, Any], int, int]] = {
    "compact": ({"num_feat": 48, "num_conv": 8}, 4, 32),
    "rrdbnet": ({"num_feat": 32, "num_block": 2, "num_grow_ch": 16}, 2, 24),
}
"""By name: arguments, samples of a rank, side of their crops."""


def timed(call: Callable[[], object], times: int) -> list[float]:
    """Return the seconds of each call, after a tenth as many that nobody times."""
    seconds = []
    for number in range(times + times // 10 + 1):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
        del number
    return seconds[-times:]


def timed_in_turns(calls: Mapping[str, Callable[[], object]], times: int) -> dict[str, list[float]]:
    """Return the seconds of calls that take turns, so that what else the machine does meets all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(times):
        for name, call in calls.items():
            seconds[name] += timed(call, 1)
    return seconds


def messages(ranks: Communicator, times: int) -> dict[str, Any]:
    """Time what ranks exchange in a step and at a checkpoint, with nothing to compute between."""
    parameters = [nn.Parameter(torch.zeros(1)) for _ in range(WEIGHTS)]
    ranks.prepare(parameters)
    state = packed_state()
    begun_s = time.process_time()
    calls: dict[str, Callable[[], object]] = {
        "sum_gradients, nothing to sum": lambda: ranks.sum_gradients(parameters),
        "exchange of a step's record": lambda: ranks.all_gather_object(STEP_RECORD),
        "decided, no decision": lambda: ranks.broadcast_decisions(list),
    }
    if ranks.world_size > 1:
        flags, slots = torch.zeros(1 + WEIGHTS, dtype=torch.int32), torch.empty(ranks.world_size * SLOT_BYTES)
        rings: dict[str, Callable[[], object]] = {
            "gloo's ring, largest of all": lambda: dist.all_reduce(flags, dist.ReduceOp.MAX),
            "gloo's ring, all records": lambda: dist.all_gather(list(slots.split(SLOT_BYTES)), slots[:SLOT_BYTES]),
        }
        calls |= rings
    seconds = timed_in_turns(calls, times)
    seconds["gather of random states"] = timed(lambda: ranks.gather(state), max(20, times // 10))
    return {"seconds": seconds, "cpu_s": time.process_time() - begun_s, "state_bytes": len(state)}


def gradients(ranks: Communicator, sizes_mib: Sequence[int], times: int) -> dict[str, Any]:
    """Time summing gradients of so many MiB, a quarter of a MiB each, and count what goes over the loopback."""
    results = {}
    for size in sizes_mib:
        parameters = [nn.Parameter(torch.zeros(MIB // 16)) for _ in range(4 * size)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        ranks.prepare(parameters)
        ranks.all_gather_object({})
        before_bytes, before_s = loopback_bytes(), time.process_time()
        seconds = timed(lambda given=parameters: ranks.sum_gradients(given), times)  # type: ignore[misc]
        calls = times + times // 10 + 1
        cpu_s = (time.process_time() - before_s) / calls
        ranks.all_gather_object({})
        sent_bytes = (loopback_bytes() - before_bytes) / calls / ranks.world_size
        results[str(size)] = {"seconds": seconds, "cpu_s": cpu_s, "sent_bytes": sent_bytes}
    return results


def loopback_bytes() -> int:
    """Return the bytes that have gone over this network namespace's loopback."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


def overlap(ranks: Communicator, network: str, rounds: int, block: int) -> dict[str, Any]:
    """Time blocks of real steps that take turns: gradients summed after the backward pass, so again, and inside it."""
    arguments, samples, side = NETWORKS[network]
    inside = TorchCommunicator()
    inside.reduces_in_backward = True
    kinds = {"after": ranks, "after again": ranks, "inside": inside}
    models, snapshots = {}, {}
    for name, who in kinds.items():
        torch.manual_seed(1)
        built = ARCHS.get(network)(scale=2, **arguments)
        models[name] = SRModel(
            built,
            {"l1": L1Loss()},
            lambda some: torch.optim.Adam(some, lr=1e-4),
            Precision(torch.device("cpu")),
            parallel=overlapped if who.reduces_in_backward else None,
        )
        snapshots[name] = StepSnapshot(models[name].networks.values(), torch.device("cpu"))
    ranks.prepare(parameters_of(models["after"].objectives()[0]))
    batches = [random_batch(number, ranks.rank, samples, side) for number in range(block)]
    wall: list[dict[str, float]] = []
    cpu: list[dict[str, float]] = []
    for number in range(rounds + 1):  # the first one warms up
        names = list(kinds)[number % 3 :] + list(kinds)[: number % 3]
        wall.append({})
        cpu.append({})
        for name in names:
            ranks.all_gather_object({})
            begun, begun_cpu = time.perf_counter(), time.process_time()
            for batch in batches:
                optimize_parameters(models[name], batch, snapshot=snapshots[name], ranks=kinds[name])
            wall[-1][name] = (time.perf_counter() - begun) / block
            cpu[-1][name] = (time.process_time() - begun_cpu) / block
    weights = sum(parameter.numel() for parameter in models["after"].networks["net_g"].parameters())
    return {"wall_s": wall[1:], "cpu_s": cpu[1:], "weights": weights, "samples": samples, "side_px": side}


def random_batch(number: int, rank: int, samples: int, side: int) -> Batch:
    """Return samples of noise, others on each rank."""
    drawn = torch.Generator().manual_seed(number * 1000 + rank)
    tensors: dict[str, Tensor] = {
        name: torch.randint(0, 256, (samples, 3, size, size), dtype=torch.uint8, generator=drawn)
        for name, size in (("lq", side), ("gt", 2 * side))
    }
    plan = Plan.of(batch_size=samples, lq_size=side)
    return Batch(
        tensors, ImageCrops(3, 2), ("noise",) * samples, 0, plan, plan, BatchShape(samples, side), others=samples
    )


def whole_run(ranks: Communicator, folder: str, effective: int, steps: int, warm_up: int) -> dict[str, Any]:
    """Train the quick start under a fixed plan, and time what this rank spends with the others."""
    forced = [
        f"path:experiments_root={folder}",
        f"datasets:train:cache_dir={folder}/cache",
        "datasets:train:lq_size=48",
        f"datasets:train:batch_size_per_gpu={effective // ranks.world_size}",
        f"train:total_iter={steps}",
        "train:warmup_steps=5",
        "val:val_enabled=false",
        "memory:cpu_budget=null",
        "training_automations:enabled=false",
        "logger:use_tb_logger=false",
        f"logger:save_checkpoint_freq={steps}",
        "num_threads=1",
    ]
    spent: defaultdict[str, list[float]] = defaultdict(list)
    if ranks.world_size > 1:
        for name in ("sum_gradients", "all_gather_object", "broadcast_object"):
            setattr(ranks, name, _noted(getattr(ranks, name), spent[name]))
    with build_run(load_options(QUICKSTART, forced), ranks=ranks) as run:
        ends = []
        original = run.reporter.step

        def noted(*arguments: Any) -> None:
            ends.append((time.perf_counter(), cpu_seconds(), {name: sum(all_) for name, all_ in spent.items()}))
            original(*arguments)

        run.reporter.step = noted  # type: ignore[method-assign]
        train(run)
    (first, first_cpu, first_spent), (last, last_cpu, last_spent) = ends[warm_up], ends[-1]
    counted = len(ends) - 1 - warm_up
    return {
        "steps": counted,
        "step_s": (last - first) / counted,
        "cpu_s": (last_cpu - first_cpu) / counted,
        "in_calls_s": {name: (last_spent[name] - first_spent[name]) / counted for name in last_spent},
    }


def cpu_seconds() -> float:
    """Return what this process has used of all cores."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _noted(call: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        begun = time.perf_counter()
        try:
            return call(*arguments)
        finally:
            seconds.append(time.perf_counter() - begun)

    return noted


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "messages": messages,
    "gradients": gradients,
    "overlap": overlap,
    "run": whole_run,
}


def main(what: str, out: str, arguments: str) -> None:
    """Join, measure, write."""
    torch.set_num_threads(1)
    if os.environ["WORLD_SIZE"] == "1":
        result = PARTS[what](SINGLE_PROCESS, **json.loads(arguments))
    else:
        with init_distributed("pytorch") as ranks:
            result = PARTS[what](ranks, **json.loads(arguments))
    Path(out).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
