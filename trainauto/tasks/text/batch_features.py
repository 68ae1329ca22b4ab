"""What the classifier looks at: a batch to be, beside the first one."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
IntArray = NDArray[np.int64]

FEATURES = (
    ("max_input_length", 0),
    ("token_size_x", -1),
    ("token_size_y", 1),
    ("token_size_diff", 1),
    ("batch_size_x", -1),
    ("batch_size_y", 1),
    ("batch_size_diff", 1),
    ("total_tokens_x", -1),
    ("total_tokens_y", 1),
    ("total_token_size_diff", 1),
    ("paddings_x", -1),
    ("paddings_y", 1),
    ("total_paddings_diff", 1),
)
"""Documented names, and how the memory of batch y relative to that of x follows them: 1 rising, -1 falling.

``x`` is the first batch, ``y`` the batch to be; "diff" is y / x. Token sizes are those of the longest text. All that
changes with the number of texts in y is rising, so that more texts never score less.
"""


class BatchSizes(NamedTuple):
    """Batches as far as the classifier sees them; each field is a number or an array of one shape.

    Attributes:
        samples: texts.
        longest: tokens of the longest, to which the others are padded.
        tokens: of all texts together, without padding.
    """

    samples: IntArray
    longest: IntArray
    tokens: IntArray

    @property
    def paddings(self) -> IntArray:
        """Tokens that only fill."""
        return self.samples * self.longest - self.tokens


def features_of(first: BatchSizes, batches: BatchSizes, max_input_length: IntArray) -> Floats:
    """Return the features in the order of :data:`FEATURES`, shape (features, batches).

    A batch without padding is taken to have one token of it where paddings are divided: the source draws 1 to 10
    there, at random.

    Args:
        first: the first batch of all; its fields broadcast against those of ``batches``.
        batches: those to be judged.
        max_input_length: to which texts are cut.
    """
    pairs = [(first.longest, batches.longest), (first.samples, batches.samples), (first.tokens, batches.tokens)]
    features = np.empty((len(FEATURES), *np.broadcast(*first, *batches, max_input_length).shape))
    features[0] = max_input_length
    for row, (x, y) in enumerate(pairs):
        features[3 * row + 1], features[3 * row + 2], features[3 * row + 3] = x, y, y / np.maximum(x, 1)
    x, y = first.paddings, batches.paddings
    features[10], features[11], features[12] = x, y, np.maximum(y, 1) / np.maximum(x, 1)
    return features
