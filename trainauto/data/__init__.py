"""Where samples come from: datasets by name, and the loader that follows a plan."""

from importlib import import_module
from typing import Any

from trainauto.data.dynamic_dataset import DatasetScan, DynamicDataset, SampleKey
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.data.registry import DATASETS

__all__ = ["DATASETS", "DatasetScan", "DynamicDataLoader", "DynamicDataset", "SampleKey"]

_OF_TASKS = dict.fromkeys(("GTImageDataset", "PairedImageDataset"), "trainauto.tasks.sr.data")


def __getattr__(name: str) -> Any:
    # Names of a task that lie above this package: plugins import them from here.
    if name in _OF_TASKS:
        return getattr(import_module(_OF_TASKS[name]), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
