"""Arrays of a file from elsewhere, each refused where it is not what it should be."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


class Numbers(NamedTuple):
    """What an array may hold.

    Attributes:
        kind: "i" for whole numbers, "f" for others; either of 64 bits at most.
        dimensions: of its shape.
        least: smallest number.
        most: largest.
    """

    kind: str
    dimensions: int
    least: float = -np.inf
    most: float = np.inf

    def of(self, arrays: Arrays, name: str) -> NDArray[Any]:
        """Return an array in 64 bits.

        Raises:
            KeyError: there is none of that name.
            ValueError: it holds something else, or a number that is not finite or out of range.
        """
        array = arrays[name]
        if array.dtype.kind != self.kind or array.dtype.itemsize > 8 or array.ndim != self.dimensions:
            raise ValueError(f"{name} is of {array.dtype} in {array.ndim} dimensions, not what it should be")
        if not (np.isfinite(array) & (array >= self.least) & (array <= self.most)).all():
            raise ValueError(f"{name} holds what is not a number from {self.least:g} to {self.most:g}")
        return array.astype(np.dtype(f"{self.kind}8"))
