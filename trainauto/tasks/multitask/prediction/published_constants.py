"""What BrainVLM published of its memory: all there is to say where no model is at hand.

The figures are of that one model on the authors' card. They tell nothing of another one; measured batches correct them.
"""

from collections.abc import Mapping
from types import MappingProxyType

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
