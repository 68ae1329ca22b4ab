"""Rates of steps that grow with memory."""

from typing import Any, Protocol

from transformers import TrainerCallback


class RateScaling(Protocol):
    """Says how rates follow the samples of a step."""

    def rate_factor(self, samples: int, /) -> float:
        """Return by what a schedule's rates are multiplied for steps of so many samples."""


class RateOfStep(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Multiplies a schedule's rate for the samples that steps have now, and only where these can change.

    What counts is the plan, of packed batches the samples they have on average: the last batches of an epoch, which are
    smaller because no more samples are left, are no change. The schedule itself stays as it is; what the Trainer logs
    is the rate that the step was trained with.

    Args:
        trainer: whose steps.
        scaling: says the factor.
    """

    def __init__(self, trainer: Any, scaling: RateScaling) -> None:
        self._trainer = trainer
        self._scaling = scaling

    def on_pre_optimizer_step(self, args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Multiply the rates for this step; the session gives each group its own back afterwards."""
        memory = self._trainer.memory
        if memory is None or not memory.data.steps_may_change:
            return control
        plan = memory.pending_plan
        if plan is None:
            return control
        planned = round(memory.data.samples.mean_samples(plan)) * args.world_size
        memory.multiply_rates(self._scaling.rate_factor(planned))
        return control
