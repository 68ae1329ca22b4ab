"""Masks that Transformers leaves out where they hide nothing: it looks at the content, but never at a fake tensor's."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor

_MODULE, _FUNCTION = "transformers.masking_utils", "is_tracing"


@contextmanager
def masks_by_content(is_known: Callable[[Tensor], bool]) -> Iterator[None]:
    """Let Transformers look at masks whose content is known, as it does in a run; nothing is done where it is not used.

    Decoders make themselves a mask of ones where a batch brings none (BART, Marian), others look for texts that lie
    one behind the other (Llama without a mask). Without this they would write out masks that no run has: 1 to 8 % of a
    peak.

    Args:
        is_known: says whether the content of a fake tensor is known.
    """
    masks = sys.modules.get(_MODULE)
    original = getattr(masks, _FUNCTION, None)
    if original is None:
        yield
        return

    def is_tracing(tensor: Tensor | None = None) -> bool:
        known = isinstance(tensor, Tensor) and is_known(tensor)
        return bool(original(None if known else tensor))

    setattr(masks, _FUNCTION, is_tracing)
    try:
        yield
    finally:
        setattr(masks, _FUNCTION, original)
