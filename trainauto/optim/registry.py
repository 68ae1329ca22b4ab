"""Registries of optimizers and schedules."""

from collections.abc import Callable

from trainauto.core.registry import Registry
from trainauto.optim.package_optimizers import Optimizers

OPTIMIZERS = Optimizers("optimizer")

Shape = Callable[[float], float]
"""Maps the share of the run that is done, 0 to 1, to a factor of the configured rate."""

SCHEDULES: Registry[Callable[..., Shape]] = Registry("schedule")
