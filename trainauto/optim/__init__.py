"""Optimizers, schedules, precision and the moving average of weights."""

from trainauto.optim import optimizers, schedules
from trainauto.optim.registry import OPTIMIZERS, SCHEDULES

__all__ = ["OPTIMIZERS", "SCHEDULES", "optimizers", "schedules"]
