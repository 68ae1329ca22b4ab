"""Where samples come from: datasets by name, and the loader that follows a plan."""

from trainauto.data.dynamic_dataset import DatasetScan, DynamicDataset, SampleKey
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.data.image_dataset import GTImageDataset, PairedImageDataset
from trainauto.data.registry import DATASETS

__all__ = [
    "DATASETS",
    "DatasetScan",
    "DynamicDataLoader",
    "DynamicDataset",
    "GTImageDataset",
    "PairedImageDataset",
    "SampleKey",
]
