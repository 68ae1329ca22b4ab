"""Rates of steps that grow with memory."""

from typing import Any

from transformers import TrainerCallback

from trainauto.tasks.multitask.losses.normalizer import EffectiveBatchSizeNormalizer


class RateOfStep(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Multiplies a schedule's rate for the samples that steps have now, and only where these can change.

    What counts is the plan, of packed batches the samples they have on average: the last batches of an epoch, which are
    smaller because no more samples are left, are no change. The schedule itself, and what logs say, stay as they are.

    Args:
        trainer: whose steps.
        normalizer: says the factor.
    """

    def __init__(self, trainer: Any, normalizer: EffectiveBatchSizeNormalizer) -> None:
        self._trainer = trainer
        self._normalizer = normalizer
        self._rates: list[float] | None = None

    def on_pre_optimizer_step(self, args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Scale the rates for this step."""
        memory = self._trainer.memory
        if memory is None or memory.data.step_samples is not None:
            return control
        plan = memory.pending_plan
        if plan is None:
            return control
        samples = round(memory.data.samples.mean_samples(plan))
        factor = self._normalizer.rate_factor(samples * args.world_size)
        groups = self._trainer.optimizer.param_groups
        self._rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * factor
        return control

    def on_optimizer_step(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Put the schedule's rates back."""
        if self._rates is not None:
            for group, rate in zip(self._trainer.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate
            self._rates = None
        return control
