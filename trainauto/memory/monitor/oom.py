"""Telling out of memory from every other error: by type on CUDA, by one table of anchored messages elsewhere."""

import re

import torch

_MESSAGES = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        # torch's CPU allocator, c10/core/impl/alloc_cpu.cpp; "not enough memory" on Windows, there with a whole path
        r"^\[enforce fail at [^\]\n]*\balloc_cpu\.cpp:\d+\].*DefaultCPUAllocator: (can't allocate|not enough) memory",
        # operator new, in code that PyTorch calls; its error is all there is
        r"^std::bad_alloc$",
        # oneDNN, when it cannot get scratch memory; the message holds no more than this
        r"^could not create a primitive$",
        # cudaMalloc, cudaHostAlloc and launches outside torch's allocator: C10_CUDA_CHECK, c10/cuda/CUDAException.cpp,
        # an AcceleratorError since torch 2.8; hipify makes HIP of CUDA. Explanations follow in further lines.
        r"^(CUDA|HIP) error: out of memory(\n|$)",
        # cuMemCreate and other calls of the driver: AT_CUDA_DRIVER_CHECK, aten/src/ATen/cuda/Exceptions.h
        r"^(CUDA|HIP) driver error: out of memory(\n|$)",
        # libraries that allocate for themselves; for all but cuFFT the checks are in aten/src/ATen/cuda/Exceptions.h
        r"^(CUDA|HIP) error: (CU|HIP)BLAS_STATUS_ALLOC_FAILED\b",
        r"^cuDNN error: CUDNN_STATUS_(ALLOC_FAILED|INTERNAL_ERROR_(HOST|DEVICE)_ALLOCATION_FAILED)\b",  # 8, and 9
        r"^(cu|hip)solver error: (CU|HIP)SOLVER_STATUS_ALLOC_FAILED\b",
        r"^(cu|hip)FFT error: (CU|HIP)FFT_ALLOC_FAILED$",  # CUFFT_CHECK, aten/src/ATen/native/cuda/CuFFTUtils.h
        # aten/src/ATen/mps/MPSAllocator.mm, a RuntimeError as there is no type for it
        r"^MPS backend out of memory \(",
        # SYCL under XPU, outside torch's allocator (whose error has the type): what the Unified Runtime returns
        r"^(level_zero backend failed with error|Native API failed\. Native API returns): \d+ "
        r"\(UR_RESULT_ERROR_OUT_OF_(DEVICE|HOST)_MEMORY\)",
    )
)
"""Beginnings of messages, by where they come from. Types tell the rest: torch's allocators of CUDA, HIP and XPU."""

_OF_DEVICES = re.compile(
    r"^((CUDA|HIP)( driver)? error: |cuDNN error: |(cu|hip)solver error: |(cu|hip)FFT error: "
    r"|level_zero backend failed with error: |Native API failed\. )"
)
"""Beginnings of what devices and their libraries say, of whatever kind: the checks named above."""

_OF_ARGUMENTS = re.compile(r"_(INVALID_(VALUE|SIZE|TYPE)|BAD_PARAM|NOT_SUPPORTED)\b")
"""States that libraries return for arguments that a program gave: the device is sound."""

_FROM_ELSEWHERE = re.compile(r"^Caught \w+ in [^\n]*\.\nOriginal Traceback .*\n\w+: (.*)$", re.DOTALL)
"""What torch makes of an error in a worker of a DataLoader or in a replica: the traceback first, the message last."""

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
    if isinstance(inner := getattr(error, "inner_exception", None), Exception):  # of torch.compile, around any error
        return is_out_of_memory(inner)
    try:
        return isinstance(error, RuntimeError) and _tells_of_it(str(error))
    except MemoryError:  # under a budget of the whole process there may be none left for the words either
        return True


def is_of_device(error: BaseException) -> bool:
    """Say whether a device or one of its libraries has failed: what it computes after that is not to be trusted."""
    if isinstance(inner := getattr(error, "inner_exception", None), Exception):
        return is_of_device(inner)
    if isinstance(error, torch.AcceleratorError):
        return True
    message = _original(str(error)) if isinstance(error, RuntimeError) else ""
    return _OF_DEVICES.match(message) is not None and _OF_ARGUMENTS.search(message) is None


def _tells_of_it(message: str) -> bool:
    return any(pattern.match(_original(message)) for pattern in _MESSAGES)


def _original(message: str) -> str:
    """Return the message of an error that torch has wrapped, and any other as it is."""
    wrapped = _FROM_ELSEWHERE.match(message)
    return message if wrapped is None else wrapped[1].rstrip()
