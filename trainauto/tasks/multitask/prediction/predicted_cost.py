"""What packing prices batches of several tasks by: their predicted bytes."""

from math import exp

import numpy as np

from trainauto.data.packing import IntArray
from trainauto.memory.cost.ratio_prior import student4
from trainauto.tasks.multitask.prediction.memory_source import MemorySource


class PredictedCost:
    """A :class:`~trainauto.data.packing.BatchCost` of padded training batches in bytes, beside what is held.

    It stays what it is when it is made: batches that are recorded later change it no more.

    Args:
        source: what batches take by their size.
        factor: by which they take more than that.
        scale: of the logarithm by which two batches relate otherwise.
    """

    unit = "bytes"

    def __init__(self, source: MemorySource, factor: float, scale: float) -> None:
        self._source, self._factor, self._scale = source, factor, scale

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the bytes of batches.

        Args:
            samples: of each.
            longest: tokens of its longest text.
            images: places for images in the padded batch: its samples times the images of the one with most.
        """
        samples = np.maximum(1, np.asarray(samples))
        typical = self._source.typical_bytes(samples, longest, np.asarray(images) / samples, is_training=True)
        whole: IntArray = np.ceil(self._factor * typical).astype(np.int64)
        return whole

    def margin(self, probability: float) -> float:
        """Return the factor that a batch exceeds its cost by with at most this probability."""
        if not 0 < probability < 1:
            raise ValueError(f"a probability lies between 0 and 1, got {probability}")
        return max(1.0, exp(student4(1 - probability) * self._scale))
