"""Training on samples of several kinds, by the names its users know: where they import from.

What it is lies in :mod:`trainauto.tasks.multitask`; docs/multitask.md shows it at work.
"""

from importlib.util import find_spec
from typing import Any

from trainauto.core.errors import InputError
from trainauto.core.lazy_names import lazy_names

_WHERE: dict[str, str] = {
    "HeterogeneousCollator": "trainauto.tasks.multitask.collator",
    "MemoryAwareBatchSampler": "trainauto.tasks.multitask.memory_aware_sampler",
    "EffectiveBatchSizeNormalizer": "trainauto.tasks.multitask.normalizer",
    "GradNormBalancer": "trainauto.tasks.multitask.gradnorm",
    "HeterogeneousTrainingConfig": "trainauto.tasks.multitask.config",
    "NormRatioBalancer": "trainauto.tasks.multitask.gradnorm",
    "BatchMetrics": "trainauto.tasks.multitask.batch_metrics",
    "DynamicBatchingMonitor": "trainauto.tasks.multitask.monitor",
    "EpochMetrics": "trainauto.tasks.multitask.batch_metrics",
}
"""The module of each name."""

_NEEDS: dict[str, tuple[str, ...]] = {}
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
