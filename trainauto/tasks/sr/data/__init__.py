"""Sets of images, and crops of them as training samples."""

from trainauto.data.registry import DATASETS
from trainauto.tasks.sr.data.degraded_dataset import RealESRGANDataset, RealESRGANPairedDataset
from trainauto.tasks.sr.data.file_datasets import GTImageDataset, PairedImageDataset

__all__ = ["DATASETS", "GTImageDataset", "PairedImageDataset", "RealESRGANDataset", "RealESRGANPairedDataset"]
