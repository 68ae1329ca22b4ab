"""Rates that follow samples: steps of different size count by what they train."""

import logging
from typing import Any

from torch.optim.lr_scheduler import LambdaLR

logger = logging.getLogger(__name__)


def advance(scheduler: Any, samples: int) -> None:
    """Move a schedule by the samples of a step but one, which the Trainer counts itself.

    A ``LambdaLR`` is a function of its counter, as all schedules are that transformers makes by name but those that
    follow a metric. Others make a rate of the one before: they count steps.
    """
    if isinstance(scheduler, LambdaLR):
        scheduler.last_epoch += samples - 1


def counts_samples(scheduler: Any) -> bool:
    """Whether a schedule can count samples."""
    return isinstance(scheduler, LambdaLR)
