"""The warm-up of the rate, which stands beside optimizers and schedules."""

from math import inf
from typing import Any

from trainauto.conversion.answers import NOTHING, Nothing
from trainauto.conversion.draft import Draft


def steps_of_warmup(value: Any, draft: Draft) -> int | Nothing:
    """Return the steps of a linear warm-up; nothing for -1, which is none."""
    del draft
    return int(value) if isinstance(value, int | float) and 0 < value < inf else NOTHING
