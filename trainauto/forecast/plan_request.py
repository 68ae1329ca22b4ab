"""What code asks to be planned: a model, its loss, the shapes of a batch, and what steps."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim import Optimizer

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.plan import Axis
from trainauto.forecast.batch_shapes import BatchShapes, Bounds, Shapes
from trainauto.integrations.loop_model import Loss

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]

_OPTIMIZERS: Mapping[str, MakeOptimizer] = {
    name: kind for name, kind in vars(torch.optim).items() if isinstance(kind, type) and issubclass(kind, Optimizer)
}


@dataclass(frozen=True)
class PlanRequest:
    """A training loop of one's own, as far as memory follows it.

    Attributes:
        model: at hand, or what makes it. One at hand stays as it is; one that is made costs no memory, where its
            constructor works on tensors without data.
        loss: ``loss(model, batch)``; the model passed in is a copy without data, so it must use no other. Mixed
            precision is opened within. Where nothing steps, its result is not looked at.
        shapes: of a batch, see :mod:`trainauto.forecast.batch_shapes`.
        optimizer: one that steps the model, a class (``torch.optim.SGD``) or a function that makes one from
            parameters, or a name in ``torch.optim``; ``None`` for inference, which runs without gradients.
        bounds: by word of the shapes, the smallest and the largest value, and a multiple; what stands first grows
            first. Samples have 1 to 4096 where it is silent.
        target_vram_usage: share of a card's memory that peaks may reach; ``None`` for what suits the card.

    Raises:
        InputError: shapes, bounds, optimizer or target cannot be used.
    """

    model: nn.Module | Callable[[], nn.Module]
    loss: Loss
    shapes: Shapes
    optimizer: Optimizer | MakeOptimizer | str | None = "AdamW"
    bounds: Bounds = field(default_factory=dict)
    target_vram_usage: float | None = None

    def __post_init__(self) -> None:
        self.axes()
        if isinstance(self.optimizer, str) and self.optimizer not in _OPTIMIZERS:
            raise InputError(f"torch.optim has no '{self.optimizer}'. {nearest(self.optimizer, _OPTIMIZERS)}")
        if isinstance(self.optimizer, Optimizer) and not isinstance(self.model, nn.Module):
            advice = "Give its class, or a function that makes it from parameters."
            raise InputError(Problem("the optimizer at hand steps no model that is yet to be made", advice=advice))
        if self.target_vram_usage is not None and not 0 < self.target_vram_usage <= 1:
            advice = "It is a share of the memory, above 0 and up to 1."
            raise InputError(Problem(f"target_vram_usage is {self.target_vram_usage}", advice=advice))

    def axes(self) -> tuple[Axis, ...]:
        """Return what grows, in its order."""
        return BatchShapes(self.shapes).axes(self.bounds)

    def optimizer_of(self, parameters: Iterable[nn.Parameter]) -> Optimizer | None:
        """Return a new optimizer of these parameters; ``None`` where one is at hand, or nothing steps."""
        if self.optimizer is None or isinstance(self.optimizer, Optimizer):
            return None
        return (_OPTIMIZERS[self.optimizer] if isinstance(self.optimizer, str) else self.optimizer)(parameters)
