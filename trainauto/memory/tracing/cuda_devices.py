"""Code that asks for CUDA gets the CPU: steps written for a card run on fake tensors on a machine without one."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

_STAY = {Tensor.cuda, Tensor.pin_memory}


@contextmanager
def cpu_for_cuda() -> Iterator["CpuForCuda"]:
    """Let this thread make tensors on the CPU, and autocast there, wherever CUDA is named, by word or by number."""
    thread = threading.get_ident()
    with _autocast_on_cpu(thread), _modules_on_cpu(thread), CpuForCuda() as mode:
        yield mode


class CpuForCuda(TorchFunctionMode):
    """Changes CUDA devices among the arguments of torch's functions into the CPU.

    Attributes:
        made_bytes: of tensors that functions made, by whether CUDA was named: they would be on the card itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made_bytes = {True: 0, False: 0}

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
        if func is Tensor.to:
            args = (args[0], *map(_named, args[1:2]), *args[2:])
        if kwargs and "device" in kwargs:
            kwargs = {**kwargs, "device": _named(kwargs["device"])}
        changed = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        result = func(*map(_on_cpu, args), **changed)
        if func in _device_constructors():
            there = bool(kwargs) and changed.get("device") is not (kwargs or {}).get("device")
            self.made_bytes[there] += result.numel() * result.element_size() if isinstance(result, Tensor) else 0
        return result


def _named(device: Any) -> Any:
    """Return a device by its name where it is given as a card's number."""
    return "cuda" if isinstance(device, int) and not isinstance(device, bool) else device


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
        if device_type.split(":")[0] == "cuda" and threading.get_ident() == thread:
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        original(self, device_type, dtype, enabled, cache_enabled)

    torch.autocast.__init__ = begin  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__init__ = original  # type: ignore[method-assign]


@contextmanager
def _modules_on_cpu(thread: int) -> Iterator[None]:
    """Let modules be sent to a card by its number: they ask torch which one it is, past every mode."""
    original = nn.Module.to

    def to(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        if threading.get_ident() == thread:
            args = (*map(_named, args[:1]), *args[1:])
            kwargs = {name: _named(value) if name == "device" else value for name, value in kwargs.items()}
        return original(self, *args, **kwargs)

    nn.Module.to = to  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.to = original  # type: ignore[method-assign]
