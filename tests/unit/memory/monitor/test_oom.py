"""What is a lack of memory and what is not."""

import pytest
import torch

from trainauto.memory.monitor import oom
from trainauto.memory.monitor.meter import MemoryMeter, resident_bytes
from trainauto.memory.monitor.oom import is_out_of_memory


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
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_known_failures(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("failed to allocate a port"),
        RuntimeError("my layer says: DefaultCPUAllocator: can't allocate memory"),
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
