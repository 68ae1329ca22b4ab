"""The Trainer of several tasks with the learning rates of an option file."""

from typing import Any

from trainauto.builders.schedules import build_shape
from trainauto.core.run_events import LengthUnit
from trainauto.optim.schedules import RateSchedule
from trainauto.options.load import LoadedOptions
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.tasks.multitask.trainer import DynamicBatchingTrainer


class ScheduledTrainer(DynamicBatchingTrainer):
    """Rates go by the schedule of an option file, whatever the arguments say of one.

    Args:
        loaded: the option file.
        arguments: of :class:`~trainauto.tasks.multitask.trainer.DynamicBatchingTrainer`.
        options: of it, too.
    """

    def __init__(self, loaded: LoadedOptions[MultitaskOptions], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loaded = loaded

    def own_schedule(self, total: int, unit: LengthUnit, step_samples: float) -> RateSchedule:
        """Return the schedule; its shape begins where the warm-up ends, as in transformers."""
        train = self._loaded.options.train
        step = step_samples if unit == "samples" else 1.0
        warmup = train.warmup_steps * step or train.warmup_ratio * total
        return RateSchedule(build_shape(self._loaded, total), total, unit, warmup, decays_after_warmup=True, step=step)
