"""Schedules of the learning rate, from options."""

from typing import Any

from trainauto.builders.components import build_component
from trainauto.optim import SCHEDULES
from trainauto.optim.registry import Shape
from trainauto.options.load import LoadedOptions


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
