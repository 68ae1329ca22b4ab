"""Schedules of the learning rate, from options."""

import logging
from collections.abc import Iterable
from typing import Any

from torch.optim import Optimizer

from trainauto.builders.components import build_component
from trainauto.core.run_events import LengthUnit
from trainauto.models.base_model import BaseModel
from trainauto.optim import SCHEDULES
from trainauto.optim.registry import Shape
from trainauto.optim.schedules import ROUNDING, Placed, RateSchedule
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import RunOptions, RunTraining, is_schedule_free
from trainauto.options.schema import Options

logger = logging.getLogger(__name__)


def build_shape(loaded: LoadedOptions[Any], total: int) -> Shape:
    """Return what `train.scheduler` names.

    Args:
        loaded: options with a section `train`.
        total: length of the run, in what milestones are counted in.

    Raises:
        InputError: there is no such schedule, or it does not take what the file gives it.
    """
    chosen = loaded.options.train.scheduler
    shape: Shape = build_component(
        loaded, SCHEDULES, ("train", "scheduler"), chosen.type, chosen.arguments, {"total": total}
    )()
    return shape


def run_length(options: RunOptions) -> tuple[int, LengthUnit]:
    """Return the length of a run and what it is counted in."""
    if options.train.total_iter is not None:
        return options.train.total_iter, "steps"
    return options.train.total_samples or 0, "samples"


LEAST_FIRST_WEIGHTS = 0.1
"""Share of the first weights in the average at the end of a run from which on that is said."""
_AVERAGED_OVER = 5
"""Times that a run is to be longer than what its average reaches back: 1 % of the first weights is left then."""


def warn_of_short_run(options: Options, world_size: int = 1) -> None:
    """Say so where a run is too short for its average: it would be validated mostly by weights it began with."""
    train = options.train
    decay = train.ema_decay
    samples = options.datasets.train.batch_size_per_gpu * options.datasets.train.accum_iter * world_size
    steps = train.total_iter or (train.total_samples or 0) // samples
    if not decay or train.ema_power is not None or decay**steps < LEAST_FIRST_WEIGHTS:
        return
    fitting = 1 - float(f"{_AVERAGED_OVER / steps:.1g}") if steps > 2 * _AVERAGED_OVER else 0.0
    logger.warning(
        "ema_decay %g averages weights over about %.0f steps, and this run has %d: the weights that are validated "
        "and saved are still %.0f %% the initial ones. `ema_decay: %g` under train suits this length",
        decay,
        1 / (1 - decay),
        steps,
        100 * decay**steps,
        fitting,
    )


def build_schedule(loaded: LoadedOptions[RunOptions], model: BaseModel, total: int, unit: LengthUnit) -> RateSchedule:
    """Build the schedule of the learning rate over the length of a run, from the rates the optimizers have now."""
    train, shape = loaded.options.train, build_shape(loaded, total)
    warmup = train.warmup_steps or train.warmup_ratio * total
    for optimizer in model.optimizers.values():
        RateSchedule.remember_rates(optimizer)
    _warn_of_shape(train.scheduler.type, shape, unit, model.optimizers.values())
    return RateSchedule(shape, total, unit, warmup)


def _warn_of_shape(name: str, shape: Shape, unit: LengthUnit, optimizers: Iterable[Optimizer]) -> None:
    """Say where a schedule does what its file may not want: it ends early, raises rates, or is not needed."""
    kinds = [type(one).__name__ for one in optimizers if is_schedule_free(type(one).__name__)]
    if kinds and name.lower() not in ("constant", "none", "constantlr"):
        logger.warning("%s needs no schedule, but scheduler %s changes its learning rate", kinds[0], name)
    if not isinstance(shape, Placed):
        return
    if shape.end is not None and shape.end < shape.total * (1.0 - ROUNDING):
        then = "rises again" if name.lower() in ("cosine", "cosineannealinglr") else "stays as it is then"
        logger.warning(
            "scheduler %s ends after %g of %g %s: the learning rate %s", name, shape.end, shape.total, unit, then
        )
    rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    if shape.floor > min(rates):
        logger.warning(
            "eta_min %g of scheduler %s is above the learning rate %g, which rises to it", shape.floor, name, min(rates)
        )


def length_of(train: RunTraining, epochs: float | None, samples: int) -> tuple[int, LengthUnit]:
    """Return the length of a run of so many training samples, and what it is counted in."""
    if train.total_iter is not None:
        return train.total_iter, "steps"
    if train.total_samples is not None:
        return train.total_samples, "samples"
    return max(1, round((epochs or 1) * samples)), "samples"
