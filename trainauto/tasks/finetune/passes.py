"""Passes of a step by what its conversations hold: few long ones or many short ones, with their pictures."""

from dataclasses import dataclass

import numpy as np

from trainauto.data.packing import FewestBatches, SampleSizes
from trainauto.data.packing.pack import pack_ordered
from trainauto.data.packing.sizes import IntArray


@dataclass(frozen=True)
class PassCost:
    """What a pass takes, in parts of what the largest conversation takes alone.

    A pass fits where so many of the largest would: by padded tokens, words and those of pictures, and by rows of
    pictures (patches) that the vision tower reads; or where it has no more conversations than that.

    Attributes:
        tokens: of the largest conversation, pictures included.
        rows: what its pictures are to the vision tower; 1 where it has none.
        unit: what costs are in.
    """

    tokens: int
    rows: int
    unit: str = "parts of the largest conversation"

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return what passes cost; ``images`` are rows of pictures."""
        held = np.maximum(samples * longest * self.rows, images * self.tokens)
        cost: IntArray = np.minimum(held, samples * self.tokens * self.rows)
        return cost

    def bound(self, largest: int) -> int:
        """Return what so many of the largest conversations cost."""
        return largest * self.tokens * self.rows

    def ends(self, sizes: SampleSizes, largest: int) -> list[int]:
        """Return where the fewest passes end that take no more than so many of the largest conversations.

        Args:
            sizes: tokens and rows of pictures of the step's conversations, from the longest to the shortest.
            largest: how many of the largest a pass may hold.
        """
        count = len(sizes)
        rule = FewestBatches(self, self.bound(largest))
        ends: list[int] = pack_ordered(rule, sizes, np.arange(count), np.full(count, count)).ends.tolist()
        return ends
