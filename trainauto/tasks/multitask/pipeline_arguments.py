"""What a Trainer is told by the configuration of a training on several tasks."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.integrations.huggingface.arguments import MemoryAwareTrainingArguments
from trainauto.tasks.multitask.config import HeterogeneousTrainingConfig

OF_THE_CONFIG = {
    "per_device_train_batch_size": "base_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "max_batch_size": "target_batch_size",
    "learning_rate": "learning_rate",
    "warmup_steps": "warmup_steps",
    "max_steps": "max_steps",
    "num_train_epochs": "num_epochs",
    "memory_budget": "max_memory_mb",
}
"""Arguments that a configuration says, by its own name for each."""


def training_arguments(
    config: HeterogeneousTrainingConfig,
    output_dir: Path,
    samples: int,
    more: Mapping[str, Any],
    *,
    on_cpu: bool,
    evaluates: bool,
) -> MemoryAwareTrainingArguments:
    """Return the arguments of a Trainer.

    Margin and limit of memory are the guardian's, and come from there.

    Args:
        config: checked.
        output_dir: folder of checkpoints and of the run's files.
        samples: of an epoch.
        more: arguments that the configuration does not say.
        on_cpu: whether it trains on the CPU.
        evaluates: whether there is something to evaluate on, after each epoch.

    Raises:
        InputError: ``more`` holds what the configuration says.
    """
    _check_said_once(more)
    length = config.length
    grows = not config.use_gradient_accumulation
    step_samples = config.base_batch_size if grows else config.effective_batch_size
    steps = length.max_steps or math.ceil((length.num_epochs or 0) * samples / step_samples)
    said: dict[str, Any] = {
        "per_device_train_batch_size": config.base_batch_size,
        "gradient_accumulation_steps": config.steps_of_accumulation,
        "max_batch_size": config.effective_batch_size if grows else None,
        "learning_rate": config.learning_rate,
        "warmup_steps": config.warmup_of(steps),
        "max_steps": length.max_steps or -1,
        "num_train_epochs": length.num_epochs or int(config.num_epochs),
        "use_cpu": on_cpu,
        "report_to": [],
        "logging_steps": 10,
        "save_strategy": "epoch",
        "eval_strategy": "epoch" if evaluates else "no",
    }
    for what in ("save", "eval", "logging") if evaluates else ("save", "logging"):
        if f"{what}_steps" in more or f"{what}_samples" in more:
            said[f"{what}_strategy"] = "steps"
    return MemoryAwareTrainingArguments(str(output_dir), **{**said, **more})


def _check_said_once(more: Mapping[str, Any]) -> None:
    problems = [
        Problem(
            f"training_arguments has {name}, which the configuration says",
            advice=f"Write config.{OF_THE_CONFIG[name]}.",
        )
        for name in more
        if name in OF_THE_CONFIG
    ]
    if problems:
        raise InputError(problems)
