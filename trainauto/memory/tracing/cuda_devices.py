"""Code that asks for CUDA gets the CPU: steps written for a card run on fake tensors on a machine without one."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_STAY = {Tensor.cuda, Tensor.pin_memory}


@contextmanager
def cpu_for_cuda() -> Iterator[None]:
    """Let this thread make tensors on the CPU, and autocast there, wherever CUDA is named."""
    with _autocast_on_cpu(threading.get_ident()), _CpuMode():
        yield


class _CpuMode(TorchFunctionMode):
    """Changes CUDA devices among the arguments of torch's functions into the CPU."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        if func in _STAY:
            return args[0]
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        return func(*map(_on_cpu, args), **{name: _on_cpu(value) for name, value in (kwargs or {}).items()})


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and value.split(":")[0] == "cuda" else value


@contextmanager
def _autocast_on_cpu(thread: int) -> Iterator[None]:
    original = torch.autocast.__init__

    def begin(
        self: torch.autocast,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if device_type == "cuda" and threading.get_ident() == thread:
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        original(self, device_type, dtype, enabled, cache_enabled)

    torch.autocast.__init__ = begin  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__init__ = original  # type: ignore[method-assign]
