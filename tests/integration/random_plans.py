"""Random plans against random budgets on one network, in a process of its own; a line of JSON for each plan.

python -m tests.integration.random_plans NETWORK SEED PLANS

The parts are those of a run, in a run's order: allocator calmed, optimizer state made, the smallest step, the baseline.
Then, for each plan, a budget is set, a batch made outside of it (as the loader does) and trained; where memory ran out,
the smallest plan is trained next, under the same budget.
"""

import gc
import json
import random
import sys
from dataclasses import dataclass
from typing import Any

from trainauto.core.process import limit_private_memory, set_environment, without_memory_limit

set_environment()  # torch reads it when it is loaded

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from trainauto.automations.dynamic_batch_size import LQ_SIZE  # noqa: E402
from trainauto.core.batch import Batch  # noqa: E402
from trainauto.core.plan import BatchShape, Plan  # noqa: E402
from trainauto.core.records import PeakReading  # noqa: E402
from trainauto.engine import step as engine_step  # noqa: E402
from trainauto.engine.optimizer_state import make_optimizer_state  # noqa: E402
from trainauto.engine.snapshot import StepSnapshot  # noqa: E402
from trainauto.engine.step_outcome import Stepped  # noqa: E402
from trainauto.memory.monitor import budget, oom  # noqa: E402
from trainauto.memory.monitor.meter import MemoryMeter  # noqa: E402
from trainauto.memory.monitor.oom import is_out_of_memory  # noqa: E402
from trainauto.memory.monitor.release import release_memory  # noqa: E402
from trainauto.models import SRModel  # noqa: E402
from trainauto.optim.precision import Precision  # noqa: E402
from trainauto.tasks.sr.archs import ARCHS  # noqa: E402
from trainauto.tasks.sr.data.image_crops import ImageCrops  # noqa: E402
from trainauto.tasks.sr.losses.pixel_loss import L1Loss  # noqa: E402

MIB = 1024**2
CPU = torch.device("cpu")
SCALE = 2


@dataclass(frozen=True)
class Case:
    """A network, and where its plans and budgets are drawn from; crops are multiples of ``multiple``."""

    arguments: dict[str, Any]
    multiple: int
    lq_px: tuple[int, int]
    largest_batch: int
    budgets_mib: tuple[int, int]


CASES = {
    "compact": Case({"num_feat": 16, "num_conv": 2}, 1, (24, 56), 8, (3, 8)),
    "rrdbnet": Case({"num_feat": 8, "num_block": 1, "num_grow_ch": 4}, 2, (20, 44), 8, (3, 8)),
    "span": Case({"feature_channels": 6}, 1, (18, 30), 6, (3, 6)),
    "swinir_light": Case({"embed_dim": 12, "depths": [2], "num_heads": [2]}, 8, (16, 40), 7, (4, 12)),
}


@dataclass(frozen=True)
class Attempt:
    """One step: the real errors on the way, whether the batch was trained in the end, and whether weights changed."""

    errors: list[str]
    trained: bool
    changed: bool
    reading: PeakReading


class Trial:
    """One network under changing budgets."""

    def __init__(self, name: str, seed: int) -> None:
        self.case = CASES[name]
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.network = ARCHS.get(name)(scale=SCALE, **self.case.arguments)
        self.model = SRModel(
            self.network, {"l1": L1Loss()}, lambda p: torch.optim.Adam(p, lr=1e-4), Precision(CPU), ema_decay=0.99
        )
        self.snapshot = StepSnapshot(self.model.networks.values(), CPU)
        self.meter = MemoryMeter(CPU)
        self.smallest = Plan.of(batch_size=1, lq_size=8)
        self.baseline: dict[str, int] = {}
        self.errors: list[str] = []
        engine_step.is_out_of_memory = oom.is_out_of_memory = self.recognise

    def recognise(self, error: BaseException) -> bool:
        """Decide as the engine does, and keep what was said: a batch that fits in no pieces tells its last error."""
        recognised = is_out_of_memory(error)
        if recognised:
            self.errors.append(f"{type(error).__name__}: {error}".splitlines()[0])
        return recognised

    def prepare(self) -> None:
        budget.calm_allocator()
        budget.load_libraries()  # as every meter does before its budget is in force
        make_optimizer_state(self.model.optimizers.values())
        self.step(self.smallest)
        release_memory(CPU)
        self.baseline = budget.status_bytes("RssAnon", "VmData")

    def run_one(self) -> dict[str, Any]:
        """Train one random plan under one random budget, then the smallest plan if memory ran out."""
        plan, budget_bytes = self.random_plan(), self.random_budget_bytes()
        if not self.meter.set_budget(budget_bytes):
            raise RuntimeError("this platform enforces no budget")
        tried = self.step(plan)
        growth_mib = self.growth_mib()
        small = self.step(self.smallest) if tried.errors else None
        limit_private_memory(None)
        return {
            "plan": str(plan),
            "budget_mib": round(budget_bytes / MIB, 1),
            "peak_mib": round(tried.reading.allocated / MIB, 1),
            "errors": tried.errors,
            "trained": tried.trained,
            "changed": tried.changed,
            "smallest_trained": None if small is None else small.trained and small.changed,
            "growth_mib": growth_mib,
            "finite": bool(self.weights().isfinite().all()),
            "onednn": bool(torch.backends.mkldnn.enabled),
        }

    def step(self, plan: Plan) -> Attempt:
        with without_memory_limit():
            batch, before = self.batch(plan), self.weights()
        self.errors = []
        with self.meter.window() as window:
            outcome = engine_step.optimize_parameters(
                self.model, batch, engine_step.StepSettings(max_norm=1.0), snapshot=self.snapshot
            )
        trained = isinstance(outcome, Stepped)
        if window.reading is None:
            raise RuntimeError("this platform measures no memory")
        with without_memory_limit():
            return Attempt(self.errors, trained, not torch.equal(self.weights(), before), window.reading)

    def batch(self, plan: Plan) -> Batch:
        samples, extent = plan.batch_size, plan[LQ_SIZE]
        tensors = {
            name: torch.randint(0, 256, (samples, 3, side, side), dtype=torch.uint8)
            for name, side in (("lq", extent), ("gt", extent * SCALE))
        }
        return Batch(tensors, ImageCrops(3, 2), ("random.png",) * samples, 0, plan, plan, BatchShape(samples, extent))

    def random_plan(self) -> Plan:
        case, samples = self.case, self.random.randint(1, self.case.largest_batch)
        extent = case.multiple * self.random.randint(case.lq_px[0] // case.multiple, case.lq_px[1] // case.multiple)
        micro_batches = min(samples, self.random.choice((1, 1, 1, 2, 3)))
        return Plan.of(batch_size=samples, lq_size=extent, micro_batches=micro_batches)

    def random_budget_bytes(self) -> int:
        smallest, largest = self.case.budgets_mib
        return int(smallest * (largest / smallest) ** self.random.random() * MIB)  # as many small ones as large ones

    def weights(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.network.parameters()])

    def growth_mib(self) -> dict[str, float]:
        now = budget.status_bytes("RssAnon", "VmData")
        return {name: round((now[name] - self.baseline[name]) / MIB, 1) for name in now}


def main(name: str, seed: int, plans: int) -> None:
    gc.freeze()  # the collection after every failure then need not walk all that was imported
    trial = Trial(name, seed)
    trial.prepare()
    for _ in range(plans):
        print(json.dumps(trial.run_one()), flush=True)
    release_memory(CPU)
    print(json.dumps({"at_the_end_mib": trial.growth_mib()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
