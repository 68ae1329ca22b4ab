"""Training on samples of several kinds, by the names its users know: where they import from.

What it is lies in :mod:`trainauto.tasks.multitask`; docs/multitask.md shows it at work.
"""

from importlib.util import find_spec
from typing import Any

from trainauto.core.errors import InputError
from trainauto.core.lazy_names import lazy_names

_WHERE: dict[str, str] = {
    "BatchMetrics": "trainauto.tasks.multitask.monitoring.batch_metrics",
    "DynamicBatchingMonitor": "trainauto.tasks.multitask.monitoring.monitor",
    "DynamicBatchingTrainer": "trainauto.tasks.multitask.trainer",
    "DynamicBatchingTrainingPipeline": "trainauto.tasks.multitask.pipeline",
    "EffectiveBatchSizeNormalizer": "trainauto.tasks.multitask.losses.normalizer",
    "EpochMetrics": "trainauto.tasks.multitask.monitoring.batch_metrics",
    "GradNormBalancer": "trainauto.tasks.multitask.losses.gradnorm",
    "GradientCheckpointManager": "trainauto.tasks.multitask.prediction.gradient_checkpoint_manager",
    "HeterogeneousCollator": "trainauto.tasks.multitask.batches.collator",
    "HeterogeneousTrainingConfig": "trainauto.tasks.multitask.config",
    "MemoryAwareBatchSampler": "trainauto.tasks.multitask.batches.memory_aware_sampler",
    "MemoryPredictor": "trainauto.tasks.multitask.prediction.memory_predictor",
    "MixedStream": "trainauto.tasks.multitask.batches.mixed_stream",
    "NormRatioBalancer": "trainauto.tasks.multitask.losses.gradnorm",
    "OOMGuardian": "trainauto.tasks.multitask.prediction.oom_guardian",
    "TaskMixing": "trainauto.tasks.multitask.batches.task_stream",
    "TaskSize": "trainauto.tasks.multitask.prediction.task_sizes",
    "estimate_training_memory": "trainauto.tasks.multitask.prediction.training_estimate",
}
"""The module of each name."""

_NEEDS: dict[str, tuple[str, ...]] = {
    "DynamicBatchingTrainer": ("transformers", "accelerate"),
    "DynamicBatchingTrainingPipeline": ("transformers", "accelerate"),
}
"""Packages that a name needs beyond what is always installed."""

__all__ = [*_WHERE]

_load = lazy_names(globals(), _WHERE)


def __getattr__(name: str) -> Any:
    lacking = [package for package in _NEEDS.get(name, ()) if find_spec(package) is None]
    if lacking:
        raise InputError(f"{name} needs {' and '.join(lacking)}: pip install 'trainauto[multitask]'")
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
