"""One of two ranks whose memory is short, in a process of its own: what it takes, and that nobody hangs.

python -m tests.integration.rank_failures OUT STEPS

Both ranks train the same network on batches of the same size. Rank 1 has a budget, drawn anew for every step, in which
its part sometimes fits and sometimes does not; rank 0 has twice as much, in which it always fits. The first rank also
trains a copy of the network on all samples, without ranks and budgets: what the two are to be equal to.
"""

import copy
import gc
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from trainauto.core.process import limit_private_memory, set_environment, without_memory_limit

set_environment()

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from trainauto.core.batch import Batch  # noqa: E402
from trainauto.core.objectives import (  # noqa: E402
    LossTerms,
    MicroBatch,
    Objective,
    parameters_of,
)
from trainauto.core.plan import BatchShape, Plan  # noqa: E402
from trainauto.distributed.communicator import Communicator, TorchCommunicator, init_distributed  # noqa: E402
from trainauto.engine.optimizer_state import make_optimizer_state  # noqa: E402
from trainauto.engine.snapshot import StepSnapshot  # noqa: E402
from trainauto.engine.step import optimize_parameters  # noqa: E402
from trainauto.engine.step_outcome import DoesNotFit  # noqa: E402
from trainauto.memory.monitor import budget  # noqa: E402
from trainauto.memory.monitor.meter import MemoryMeter  # noqa: E402
from trainauto.memory.monitor.release import release_memory  # noqa: E402
from trainauto.models import SRModel  # noqa: E402
from trainauto.optim.precision import Precision  # noqa: E402
from trainauto.tasks.sr.archs import ARCHS  # noqa: E402
from trainauto.tasks.sr.data.image_crops import ImageCrops  # noqa: E402
from trainauto.tasks.sr.losses.pixel_loss import MSELoss  # noqa: E402

MIB = 1024**2
CPU = torch.device("cpu")
SAMPLES, EXTENT, SCALE = 6, 32, 2
SHORT_MIB = (2.2, 6.0)
"""Budgets of rank 1: one sample fits in the smallest, six do in the largest."""


class Watched(StepSnapshot):
    """Notes where a pass was when it failed: in its loss (forward), or after it (backward)."""

    def __init__(self, model: SRModel) -> None:
        super().__init__(model.networks.values(), CPU)
        (self.real,) = model.objectives()
        self.now = "forward"
        self.failed: Counter[str] = Counter()
        model._passes = (Objective(self.real.name, self.real.optimizer, self._loss, self.real.splittable),)

    def _loss(self, micro_batch: MicroBatch) -> LossTerms:
        self.now = "forward"
        terms = self.real.loss(micro_batch)
        self.now = "backward"
        return terms

    def restore(self) -> None:
        self.failed[self.now] += 1
        super().restore()


def new_model() -> SRModel:
    torch.manual_seed(1)
    network = ARCHS.get("rrdbnet")(scale=SCALE, num_feat=8, num_block=1, num_grow_ch=4)
    return SRModel(network, {"mse": MSELoss()}, lambda p: torch.optim.SGD(p, lr=0.05), Precision(CPU))


def whole_batch(step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        name: torch.randint(0, 256, (2 * SAMPLES, 3, side, side), dtype=torch.uint8, generator=generator)
        for name, side in (("lq", EXTENT), ("gt", EXTENT * SCALE))
    }


def as_batch(tensors: dict[str, Tensor], others: int) -> Batch:
    samples = len(tensors["lq"])
    plan = Plan.of(batch_size=samples, lq_size=EXTENT)
    return Batch(
        tensors, ImageCrops(3, 2), ("random.png",) * samples, 0, plan, plan, BatchShape(samples, EXTENT), others=others
    )


def weights(network: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def train(ranks: Communicator, steps: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    model, meter, pick = new_model(), MemoryMeter(CPU), random.Random(ranks.rank)
    alone = copy.deepcopy(model.networks["net_g"])
    reference = SRModel(alone, {"mse": MSELoss()}, lambda p: torch.optim.SGD(p, lr=0.05), Precision(CPU))
    snapshot = Watched(model)
    ranks.prepare(parameters_of(model.objectives()[0]))
    budget.calm_allocator()
    make_optimizer_state(model.optimizers.values())
    optimize_parameters(
        model, as_batch({n: t[:1] for n, t in whole_batch(0).items()}, 1), snapshot=snapshot, ranks=ranks
    )
    optimize_parameters(reference, as_batch({n: t[[0, 0]] for n, t in whole_batch(0).items()}, 0))
    release_memory(CPU)
    given_up, steps_in_pieces, furthest = 0, 0, 0.0
    for step in range(1, steps + 1):
        limit = max(SHORT_MIB) * 2 if ranks.is_first else pick.uniform(*SHORT_MIB)
        meter.set_budget(int(limit * MIB))
        with without_memory_limit():
            tensors = whole_batch(step)
            mine = as_batch({name: tensor[ranks.rank :: 2].clone() for name, tensor in tensors.items()}, SAMPLES)
        try:
            outcome = optimize_parameters(model, mine, snapshot=snapshot, ranks=ranks)
        finally:
            limit_private_memory(None)
            release_memory(CPU)
        if isinstance(outcome, DoesNotFit):
            given_up += 1
            if ranks.is_first:
                snapshot.failed.clear()  # it had its gradients, and dropped them because the other had none
            continue
        steps_in_pieces += bool(outcome.failures)
        if ranks.is_first:
            optimize_parameters(reference, as_batch(tensors, 0))
            difference = (weights(alone) - weights(model.networks["net_g"])).abs().max()
            furthest = max(furthest, float(difference))
    told = ranks.all_gather_object({"weights": weights(model.networks["net_g"]).double().sum().item().hex()})
    return {
        "failed": dict(snapshot.failed),
        "steps_in_pieces": steps_in_pieces,
        "given_up": given_up,
        "furthest": furthest,
        "equal": len({rank["weights"] for rank in told}) == 1,
    }


def main(out: str, steps: int) -> None:
    gc.freeze()  # the collection after every failure then need not walk all that was imported
    with init_distributed("pytorch") as ranks:
        assert isinstance(ranks, TorchCommunicator)
        Path(out).write_text(json.dumps(train(ranks, steps)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
