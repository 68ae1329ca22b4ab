"""The pictures of a run: how many pixels they keep, and what becomes of that where not one conversation fits."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trainauto.tasks.finetune.encoding import ConversationEncoder
from trainauto.tasks.finetune.preflight import LookedThrough
from trainauto.tasks.finetune.processors import ANY_PIXELS

SMALLER = 2
"""Pixels are divided by it: patches, and the tokens that stand for them, become half as many."""


class Pictures:
    """The pictures of the conversations that a run learns from.

    Args:
        encoder: whose processor reduces them.
        looked_through: the conversations.
        fewest: pixels to which they may be reduced further where not even one conversation fits; ``None`` for never.
    """

    def __init__(self, encoder: ConversationEncoder, looked_through: LookedThrough, fewest: int | None) -> None:
        self.fewest = fewest
        self._encoder = encoder
        self._sizes = looked_through.sizes
        self._words = looked_through.lengths - self._tokens()
        self._found = max((width * height for sizes in self._sizes for width, height in sizes), default=0)

    @property
    def longest(self) -> int:
        """Number of the conversation with most tokens, by the pixels that pictures keep now."""
        return int(np.argmax(self._words + self._tokens()))

    @property
    def largest(self) -> int:
        """Pixels of the largest picture there is, as it is reduced now; 0 where there is none.

        A picture of 100 x 100 has as many patches at a limit of 448 x 448 as at one of 112 x 112: where nothing is
        larger, only a limit below its own size makes anything smaller.
        """
        least, most = self._encoder.picture_pixels
        return min(max(self._found, least), most) if self._found else 0

    @property
    def limit(self) -> int:
        """Pixels that a picture keeps at most."""
        return self._encoder.picture_pixels[1]

    @property
    def are_bounded(self) -> bool:
        """Whether a limit says how large pictures are: of some processors all have one size."""
        return self.limit < ANY_PIXELS

    @property
    def next_smaller(self) -> int | None:
        """Pixels to reduce pictures to where memory does not hold one conversation; ``None`` where they stay."""
        if self.fewest is None or self.largest <= self.fewest:
            return None
        return max(self.fewest, self.largest // SMALLER)

    def reduce_to(self, pixels: int) -> None:
        """Have pictures that are read from now on keep no more pixels than that."""
        self._encoder.limit_pictures(pixels)

    def _tokens(self) -> NDArray[np.int64]:
        """Return the tokens of each conversation's pictures, (N,)."""
        tokens: Sequence[int] = [sum(map(self._encoder.picture_tokens, sizes)) for sizes in self._sizes]
        return np.asarray(tokens, np.int64)
