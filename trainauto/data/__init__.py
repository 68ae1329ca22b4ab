"""Where samples come from: datasets by name, and the loader that follows a plan.

Names are loaded when they are first used: packing, a package in here, is to be had without torch.
"""

from typing import TYPE_CHECKING

from trainauto.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from trainauto.data.dynamic_dataset import DatasetScan, DynamicDataset, SampleKey
    from trainauto.data.dynamic_loader import DynamicDataLoader
    from trainauto.data.registry import DATASETS

__all__ = ["DATASETS", "DatasetScan", "DynamicDataLoader", "DynamicDataset", "SampleKey"]

_WHERE = {
    "DATASETS": "trainauto.data.registry",
    "DatasetScan": "trainauto.data.dynamic_dataset",
    "DynamicDataLoader": "trainauto.data.dynamic_loader",
    "DynamicDataset": "trainauto.data.dynamic_dataset",
    "SampleKey": "trainauto.data.dynamic_dataset",
    # Names of a task that lie above this package: plugins import them from here.
    "GTImageDataset": "trainauto.tasks.sr.data",
    "PairedImageDataset": "trainauto.tasks.sr.data",
}


__getattr__ = lazy_names(globals(), _WHERE)
