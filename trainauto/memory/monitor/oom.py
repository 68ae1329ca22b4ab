"""Telling out of memory from every other error: by type on CUDA, by one table of anchored messages elsewhere."""

import re

import torch

_MESSAGES = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        # torch's CPU allocator
        r"^\[enforce fail at alloc_cpu\.cpp:\d+\].*DefaultCPUAllocator: can't allocate memory",
        # operator new, in code that PyTorch calls; its error is all there is
        r"^std::bad_alloc$",
        # oneDNN, when it cannot get scratch memory; the message holds no more than this
        r"^could not create a primitive$",
        # libraries under CUDA that allocate for themselves
        r"^(CUDA error: CUBLAS|cuDNN error: CUDNN)_STATUS_ALLOC_FAILED",
    )
)


_REFUSED = re.compile(r"you tried to allocate (\d+) bytes")


def in_words(message: str) -> str:
    """Return what an allocation failure says, for people: of torch's CPU allocator what was asked for alone."""
    if not message.startswith("[enforce fail") and message != "std::bad_alloc":
        return message
    match = _REFUSED.search(message)
    return f"{int(match[1]) / 2**20:.1f} MiB more were refused" if match else "more memory was refused"


def allocator_message(error: BaseException) -> str:
    """Return what an allocator said, in one line."""
    try:
        return next(iter(str(error).splitlines()), type(error).__name__)
    except MemoryError:
        return "no memory is left for the message"


def shortage_in(error: Exception) -> str:
    """Return what an allocator said, in one line, where memory ran out; raise any other error again."""
    if not is_out_of_memory(error):
        raise error
    return allocator_message(error)


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether ``error`` is a real allocation failure.

    A message that merely mentions memory or CUDA is none: an illegal access retried as if memory had run out would hide
    the fault and continue with a broken context.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    try:
        return isinstance(error, RuntimeError) and any(pattern.match(str(error)) for pattern in _MESSAGES)
    except MemoryError:  # under a budget of the whole process there may be none left for the words either
        return True
