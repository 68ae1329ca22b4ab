"""What batches cost as a tokenizer pads them."""

from dataclasses import dataclass

import numpy as np

from trainauto.data.packing import BatchCost, IntArray


@dataclass(frozen=True)
class PaddedCost:
    """A cost of the widths that batches are padded to.

    Attributes:
        of_widths: cost of batches by their width.
        multiple: widths are multiples of this (``pad_to_multiple_of``).
    """

    of_widths: BatchCost
    multiple: int = 1

    @property
    def unit(self) -> str:
        """What costs are in."""
        return self.of_widths.unit

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return what batches cost."""
        return self.of_widths.cost(samples, padded_width(longest, self.multiple), images)


def padded_width(longest: IntArray, multiple: int) -> IntArray:
    """Return how wide batches are by their longest texts; at least one column, for models take no batch without."""
    return -(-np.maximum(longest, 1) // multiple) * multiple
