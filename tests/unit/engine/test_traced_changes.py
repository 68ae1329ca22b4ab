"""Copies that steps keep of what losses and models change are in what is predicted, to the byte."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from trainauto.core.batch import Batch
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.plan import Plan
from trainauto.engine.module_state import LEARNING_STEPS
from trainauto.engine.traced_training import ALWAYS_CLIP, FakeTraining, TracedModel, empty_batch
from trainauto.memory.tracing.trace import Trace
from trainauto.models.base_model import BaseModel
from trainauto.tasks.sr.data.image_crops import ImageCrops


class Following(nn.Module):
    """Assigns a buffer and moves a teacher, where it is told to."""

    def __init__(self, changes: str) -> None:
        super().__init__()
        self.changes = changes
        self.student = nn.Conv2d(3, 12, 3, padding=1)
        self.teacher = deepcopy(self.student).requires_grad_(False)
        self.register_buffer("center", torch.zeros(12))
        self.register_buffer("constant", torch.zeros(7000))

    def forward(self, x: Tensor) -> Tensor:
        if "teacher" in self.changes:
            for mine, other in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                mine.data.lerp_(other.data, 0.1)
        out = self.student(x)
        if "center" in self.changes:
            self.center = self.center * 0.9 + out.detach().mean((0, 2, 3)) * 0.1
        return out + self.teacher(x) + self.center[:, None, None]


class ChangingModel(BaseModel):
    """Two passes over a batch that they change, where they are told to."""

    def __init__(self, changes: str) -> None:
        super().__init__(torch.device("cpu"))
        self.changes = changes
        self.networks = {"net": Following(changes)}
        trained = list(self.networks["net"].student.parameters())
        self.optimizers = {"first": torch.optim.Adam(trained), "second": torch.optim.SGD(trained)}

    def objectives(self) -> list[Objective]:
        return [Objective(name, optimizer, self._loss) for name, optimizer in self.optimizers.items()]

    def _loss(self, part: MicroBatch) -> LossTerms:
        if "batch" in self.changes:
            part["lq"].add_(1)
        return {"l": self.networks["net"](part["lq"].float()).square().mean()}


def batch_of(plan: Plan) -> Batch:
    return empty_batch(plan, ImageCrops(3, 2))


def figures(traced: Trace) -> tuple[object, ...]:
    return traced.persistent_bytes, traced.peak_bytes, dict(traced.phase_peaks_bytes), traced.sizes()


@pytest.mark.parametrize("changes", ["", "batch", "batch center teacher"])
def test_what_is_copied_is_predicted(changes: str) -> None:
    plan = Plan.of(batch_size=4, lq_size=16, micro_batches=2)
    fake = FakeTraining(lambda _mode: ChangingModel(changes), batch_of, clips=True)
    real = TracedModel(ChangingModel(changes), batch_of, ALWAYS_CLIP)
    assert figures(fake.trace(plan)) == figures(real.trace(plan, LEARNING_STEPS + 2))
