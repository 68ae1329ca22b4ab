"""What BrainVLM published of its memory: all there is to say where no model is at hand.

The figures are of that one model on the authors' card. They tell nothing of another one; measured batches correct them.
"""

from collections.abc import Mapping
from math import exp
from types import MappingProxyType

import numpy as np

from trainauto.core.units import GIB
from trainauto.memory.cost.ratio_prior import UPPER, RatioPrior, student4
from trainauto.tasks.multitask.prediction.batch_memory import BatchMemory

PUBLISHED: Mapping[str, int] = MappingProxyType({"T1": 1, "T2": 2, "T3": 2})
"""Images of a sample: one subject with one modality, one with several, several subjects."""

TEXT_GIB, OVERHEAD_GIB = 0.15, 0.12
"""What a sample takes beside its images."""

IMAGE_FORWARD_GIB, IMAGE_BACKWARD_GIB = 0.28, 0.35
"""What every image takes in the forward pass, and beyond that in the backward pass."""


def published_gib(images: float, *, is_training: bool = True) -> float:
    """Return the GiB of one sample.

    Images count once: the source multiplied a sum over images by 1.85 for two of them, and so counted them twice.

    Args:
        images: of the sample.
        is_training: whether there is a backward pass.
    """
    each = IMAGE_FORWARD_GIB + (IMAGE_BACKWARD_GIB if is_training else 0.0)
    return TEXT_GIB + OVERHEAD_GIB + images * each


def published_memory(*, is_training: bool = True) -> BatchMemory:
    """Return the figures as what any batch takes: every sample alike, whatever its texts.

    Another model takes another multiple of them: three times as much is within the 99 % quantile, and ten records
    outweigh it whatever they say.

    Args:
        is_training: whether there is a backward pass.
    """
    alone, with_image = (GIB * published_gib(images, is_training=is_training) for images in (0, 1))
    pieces = np.zeros((1, 2, 2, 2))
    pieces[0, 1, 0] = alone, with_image - alone
    belief = RatioPrior(1.0, exp(0.3 * student4(UPPER)), 0.05, 0.0, 0.0, 0.0)
    return BatchMemory(pieces, (0, 0), 0, belief, task_doubt=0.1)
