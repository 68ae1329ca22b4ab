"""Registry of datasets; its own module so that dataset modules can import it without a cycle."""

from trainauto.core.registry import Registry
from trainauto.data.dynamic_dataset import DynamicDataset

DATASETS: Registry[type[DynamicDataset]] = Registry("dataset")
