"""A Trainer of transformers, or of others that build on it, whose steps are held to the budget of a bench."""

from typing import Any

from torch import Tensor
from transformers import Trainer


def held(bench: Any, kind: type = Trainer) -> type:
    """Return a Trainer whose steps are held to a budget.

    Args:
        bench: an ``EpochAccount`` that can ``enforce`` the budget once there is an optimizer, and says which samples
            a batch has (``numbers_of``).
        kind: whose steps.
    """

    class Held(kind):  # type: ignore[misc]
        begun = False

        def training_step(self, model: Any, inputs: Any, *others: Any, **options: Any) -> Tensor:
            if not self.begun:
                self.begun = True
                bench.enforce(getattr(self.optimizer, "optimizer", self.optimizer))
            with bench.inside(bench.numbers_of(inputs)):
                loss: Tensor = super().training_step(model, inputs, *others, **options)
            return loss

    return Held
