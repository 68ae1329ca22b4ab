"""What is a lack of memory and what is not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.exc
from torch import Tensor
from torch._utils import ExceptionWrapper

from trainauto.memory.monitor import oom
from trainauto.memory.monitor.meter import MemoryMeter, resident_bytes
from trainauto.memory.monitor.oom import is_out_of_memory

ON_WINDOWS = "DefaultCPUAllocator: not enough memory: you tried to allocate 4294967296 bytes."


def test_the_allocators_own_error_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("could not create a primitive"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED\nfile conv.cu"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"),
        torch.AcceleratorError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs"),
        torch.AcceleratorError("HIP error: out of memory\nHIP kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA driver error: out of memory"),
        RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`. If you"),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        RuntimeError(
            "MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.20 GB, max allowed: 9 GB)"
        ),
        RuntimeError("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
        RuntimeError("Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
        RuntimeError(f"[enforce fail at alloc_cpu.cpp:121] data. {ON_WINDOWS}"),
        RuntimeError(f"[enforce fail at C:\\actions-runner\\c10\\core\\impl\\alloc_cpu.cpp:121] data. {ON_WINDOWS}"),
    ],
)
def test_known_failures(error: Exception) -> None:
    assert is_out_of_memory(error)


def fails(image: Tensor) -> Tensor:
    return image + torch.empty(2**60, dtype=torch.uint8).sum()


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError])
def test_errors_of_workers_are_known_by_what_happened_there(kind: type[Exception]) -> None:
    def of_worker(work: Callable[[], Any]) -> BaseException:
        try:
            work()
        except (ValueError, kind):
            wrapped = ExceptionWrapper(where="in DataLoader worker process 0")
        with pytest.raises((ValueError, kind), match="Caught") as caught:
            wrapped.reraise()
        return caught.value

    def raises() -> None:
        raise ValueError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory")

    def allocates() -> Any:
        return torch.empty(2**60, dtype=torch.uint8) if kind is RuntimeError else bytearray(2**60)

    assert is_out_of_memory(of_worker(allocates))
    assert not is_out_of_memory(of_worker(raises))


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("CUDA error: unspecified launch failure"), False),
    ],
)
def test_errors_of_compilers_are_known_by_what_is_inside(cause: Exception, expected: bool) -> None:
    wrapped = torch._dynamo.exc.BackendCompilerFailed(fails, cause, None)
    assert is_out_of_memory(wrapped) == expected
    assert is_out_of_memory(torch._dynamo.exc.BackendCompilerFailed(fails, wrapped, None)) == expected


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: device-side assert triggered"),
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegal"),
        torch.AcceleratorError("CUDA error: too many resources requested for launch"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        RuntimeError("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`"),
        RuntimeError("cuFFT error: CUFFT_INTERNAL_ERROR"),
        RuntimeError("level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"),
        RuntimeError("failed to allocate a port"),
        RuntimeError("my layer says: DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("after CUDA error: out of memory"),
        ValueError("out of memory"),
        KeyboardInterrupt(),
    ],
)
def test_messages_that_only_sound_like_it(error: BaseException) -> None:
    """Fault 4: any message with "CUDA" or "allocate" was taken for a lack of memory."""
    assert not is_out_of_memory(error)


def test_process_memory_follows_what_is_held() -> None:
    meter = MemoryMeter(torch.device("cpu"))
    if resident_bytes() is None:
        pytest.skip("this platform does not tell")
    before = meter.now_bytes()
    with meter.window() as window:
        held = torch.ones(64 * 2**20, dtype=torch.uint8)
    assert window.reading is not None
    assert 60 * 2**20 < window.reading.allocated - before < 80 * 2**20
    assert held.sum() == 64 * 2**20


class NoMemoryForWords:
    """A pattern whose match gets no memory, as under a budget of the whole process that is used up."""

    def match(self, message: str) -> None:
        raise MemoryError


def test_where_no_memory_is_left_to_read_the_message_memory_has_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oom, "_MESSAGES", (NoMemoryForWords(),))
    assert is_out_of_memory(RuntimeError("std::bad_alloc"))
