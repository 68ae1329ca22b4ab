"""Code that names CUDA runs on the CPU, in one thread and for a while."""

import threading
import warnings

import pytest
import torch
from torch import nn

from trainauto.memory.tracing.cuda_devices import cpu_for_cuda

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card to go to")


def test_tensors_and_modules_stay_on_the_cpu() -> None:
    with cpu_for_cuda():
        layer = nn.Linear(4, 4).to("cuda").cuda().to(torch.device("cuda", 0), torch.float32)
        rows = torch.ones(2, 4, device="cuda:0").cuda(non_blocking=True).pin_memory().to(device="cuda")
        with torch.device("cuda"):
            more = torch.zeros(2, 4)
        made = [layer(rows + more), rows.new_zeros(3, device="cuda"), torch.tensor([1.0], device=torch.device("cuda"))]
    assert {tensor.device.type for tensor in made} == {"cpu"}
    assert torch.device("cuda", 1).type == "cuda"
    with pytest.raises((RuntimeError, AssertionError)):
        torch.ones(1, device="cuda")


def test_a_card_may_be_named_by_its_number() -> None:
    original = nn.Module.to
    with cpu_for_cuda():
        layer = nn.Linear(4, 4, device=0).to(0).to(device=0, dtype=torch.float64)
        made = [layer.weight, torch.ones(2, device=0), torch.ones(2).to(0, torch.int8), torch.ones(2).to(device=0)]
        assert torch.zeros(2, dtype=torch.bool).new_full((2,), True).dtype == torch.bool
    assert {tensor.device.type for tensor in made} == {"cpu"}
    assert [tensor.dtype for tensor in made[:3]] == [torch.float64, torch.float32, torch.int8]
    assert nn.Module.to is original


def test_a_function_that_is_decorated_within_casts_ever_after() -> None:
    with cpu_for_cuda():

        @torch.autocast("cuda", torch.bfloat16)
        def product() -> torch.dtype:
            return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype

    assert product() == torch.bfloat16


def test_autocast_is_that_of_the_cpu_in_this_thread_alone() -> None:
    rows, types = torch.ones(2, 2), []

    def product(device_type: str = "cuda", dtype: torch.dtype | None = torch.bfloat16) -> torch.dtype:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # elsewhere torch says that there is no CUDA
            with torch.autocast(device_type, dtype):
                return (rows @ rows).dtype

    with cpu_for_cuda():
        thread = threading.Thread(target=lambda: types.append(product()))
        thread.start()
        thread.join(timeout=60)
        assert product() == torch.bfloat16
        assert product(dtype=None) == torch.float16  # as CUDA does where nothing is said
        assert product("cuda:0", None) == torch.float16
        assert product("cpu") == torch.bfloat16
    assert types == [torch.float32]
    assert product() == torch.float32
