"""oneDNN after running out of memory.

Where it cannot get room for the code of a kernel, the error stays in the thread for good (Xbyak's thread-local error,
which nothing clears before oneDNN pull request 5907). That thread makes no new kernel again, however much memory there
is, and every new shape fails like the first one with "could not create a primitive".
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch

from trainauto.core.process import without_memory_limit

logger = logging.getLogger(__name__)

_unseen_widths = count(8)
_left = False


def is_left() -> bool:
    """Say whether convolutions are done without oneDNN because running out of memory has broken it."""
    return _left


@contextmanager
def left_aside(wanted: bool) -> Iterator[None]:
    """Do convolutions without oneDNN for a while, as a run did whose oneDNN was broken: sums differ in last bits."""
    backend: Any = torch.backends.mkldnn
    before = backend.enabled
    backend.enabled = before and not wanted
    try:
        yield
    finally:
        backend.enabled = before and not _left


def leave_if_broken() -> bool:
    """Have convolutions done without oneDNN from now on if it makes no kernels any more; return whether that is so.

    It costs about a millisecond. PyTorch's own convolutions took up to twice the time and twice the memory here.
    """
    backend: Any = torch.backends.mkldnn
    if not backend.is_available() or not backend.enabled or _makes_kernels():
        return False
    global _left
    backend.enabled, _left = False, True
    logger.warning(
        "oneDNN ran out of memory for the code of a kernel and is disabled in this process. Convolutions continue "
        "without it, slower and with more memory. A resumed run (--auto_resume) enables it again."
    )
    return True


def _makes_kernels() -> bool:
    """Ask for the kernel of a shape not seen before, with no limit in force: a refusal is not out of memory then."""
    try:
        with without_memory_limit():
            image, weight = torch.zeros(1, 8, 8, next(_unseen_widths)), torch.zeros(8, 8, 3, 3)
    except RuntimeError:  # there is too little memory to ask
        return True
    try:
        with torch.no_grad(), without_memory_limit():
            torch.mkldnn_convolution(image, weight, None, (1, 1), (1, 1), (1, 1), 1)
    except RuntimeError:
        return False
    return True
