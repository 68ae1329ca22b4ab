"""Optimizers, schedules, precision and the moving average of weights."""

from trainauto.optim import optimizers, schedule_free, schedules
from trainauto.optim.registry import OPTIMIZERS, SCHEDULES

__all__ = ["OPTIMIZERS", "SCHEDULES", "optimizers", "schedule_free", "schedules"]
