"""How large each sample is, as far as packing goes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainauto.core.errors import InputError

IntArray = NDArray[np.int64]
"""Whole numbers; counts and costs are exact."""


@dataclass(frozen=True, eq=False)
class SampleSizes:
    """The sizes of a set of samples.

    Attributes:
        tokens: length of each sample, shape (samples,).
        images: how many images belong to each, shape (samples,); None where there are none.

    Raises:
        InputError: lengths or counts are no whole numbers, are negative, or differ in how many there are.
    """

    tokens: IntArray
    images: IntArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", _whole_numbers("tokens", self.tokens))
        if self.images is not None:
            object.__setattr__(self, "images", _whole_numbers("images", self.images))
            if len(self.images) != len(self.tokens):
                raise InputError(f"sizes of {len(self.tokens)} samples, but images of {len(self.images)}")

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, indices: IntArray) -> "SampleSizes":
        """Return the sizes of these samples, in this order."""
        return SampleSizes(self.tokens[indices], None if self.images is None else self.images[indices])

    def longest_first(self) -> IntArray:
        """Return the samples from the longest to the shortest.

        Of equal ones, those with more images come first, then those given first.
        """
        keys = _descending(self.tokens)
        if self.images is not None and len(self):
            keys = keys.astype(np.int64) * (int(self.images.max()) + 1) + _descending(self.images)
        return np.argsort(keys, kind="stable").astype(np.int64)


def _whole_numbers(name: str, values: ArrayLike) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"{name}: one whole number for each sample is needed, got {array.dtype} of shape {array.shape}"
        )
    array = array.astype(np.int64)  # a copy: what is packed must not change afterwards
    if array.size and int(array.min()) < 0:
        index = int(np.argmax(array < 0))
        raise InputError(f"{name}: sample {index} has {array[index]}; sizes cannot be negative")
    array.flags.writeable = False
    return array


def _descending(values: IntArray) -> NDArray[np.int64] | NDArray[np.uint16]:
    """Return keys that sort from large to small; small ones as 16 bits, which numpy sorts in linear time."""
    if not values.size:
        return values
    largest = int(values.max())
    keys = largest - values
    return keys.astype(np.uint16) if largest < 1 << 16 else keys
