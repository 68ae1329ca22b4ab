"""What single settings of a training on several tasks may be."""

import math
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from typing import Any

from trainauto.core.errors import Problem

COUNTS = {
    "num_epochs": 1,
    "base_batch_size": 1,
    "target_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "warmup_steps": 0,
}
"""Whole numbers, with the least that each may be."""

SWITCHES = ("use_gradient_accumulation", "enable_gradient_checkpointing", "use_grad_norm_balancing")

SUM_TOLERANCE = 0.02
"""By how much shares of tasks may miss 1: a third written as 0.33 three times."""


def problems_of(config: Any) -> Iterator[Problem]:
    """Yield what cannot be used of a configuration, setting by setting."""
    for name, least in COUNTS.items():
        value = getattr(config, name)
        if not _is_whole(value) or value < least:
            yield Problem(f"{name} is a whole number, {least} or more, got {value!r}")
    if not _is_whole(config.max_steps):
        yield Problem(f"max_steps is a whole number, got {config.max_steps!r}", advice="0 leaves it to num_epochs.")
    for name in SWITCHES:
        if not isinstance(getattr(config, name), bool):
            yield Problem(f"{name} is True or False, got {getattr(config, name)!r}")
    for name in ("learning_rate", "max_memory_mb"):
        if not _is_number(getattr(config, name)) or getattr(config, name) <= 0:
            yield Problem(f"{name} is a number above 0, got {getattr(config, name)!r}")
    if not _is_number(config.grad_norm_alpha) or config.grad_norm_alpha < 0:
        yield Problem(f"grad_norm_alpha is a number, 0 or more, got {config.grad_norm_alpha!r}")
    yield from _margin(config.memory_margin_percent)
    yield from _shares(config.task_distribution)
    yield from _weights(config.initial_task_loss_weights)


def _margin(margin: Any) -> Iterator[Problem]:
    """Refuse what is no share: per cent compared with shares made every limit a hundred times too large."""
    if _is_number(margin) and 0 <= margin < 1:
        return
    is_per_cent = _is_number(margin) and 1 <= margin <= 100
    advice = f"Write {margin / 100:g} for {margin:g} per cent." if is_per_cent else "0.1 leaves a tenth free."
    yield Problem(f"memory_margin_percent is a share, at least 0 and below 1, got {margin!r}", advice=advice)


def _shares(shares: Any) -> Iterator[Problem]:
    if not _is_by_task(shares) or any(share < 0 for share in shares.values()):
        yield Problem(f"task_distribution is a share of 0 or more for each task, got {shares!r}")
        return
    total = math.fsum(shares.values())
    if abs(total - 1) > SUM_TOLERANCE:
        yield Problem(
            f"the shares of task_distribution sum to {total:g}, and must to 1",
            advice="Divide each by their sum.",
        )


def _weights(weights: Any) -> Iterator[Problem]:
    if not _is_by_task(weights) or any(weight <= 0 for weight in weights.values()):
        yield Problem(
            f"initial_task_loss_weights is a weight above 0 for each task, got {weights!r}",
            advice="Leave samples of a task out that is not to be trained.",
        )


def _is_by_task(values: object) -> bool:
    return (
        isinstance(values, Mapping)
        and bool(values)
        and all(isinstance(task, str) and _is_number(value) for task, value in values.items())
    )


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
