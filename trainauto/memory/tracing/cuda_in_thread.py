"""A thread whose CPU tensors are cast, kept and grouped as on CUDA, in a process whose other threads notice nothing.

Traces of a card's step need that of the CPU (``cuda_autocast.py``, ``cuda_operators.py``). The dispatcher belongs to
the whole process, so what is registered asks who calls: another thread gets torch's own kernel. All of it is taken out
in the end. Autograd runs backward passes of CPU tensors in the thread that asks for them.
"""

import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from trainauto.memory.tracing import cuda_operators
from trainauto.memory.tracing.cuda_autocast import (
    Kernel,
    autocast_kernels,
    operators_with,
    overload_of,
    weights_cast_once,
)
from trainauto.memory.tracing.fake_tensors import TURN, group_as_cuda

_inside: list[int] = []
"""The thread that it is done for, as often as it has entered."""


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """Let the CPU of this thread do as CUDA does; a second thread waits for its turn.

    It is for fake tensors: what real ones of this thread would give is not what they ask for (attention drops nothing
    out).
    """
    with TURN, ExitStack() as stack:
        _inside.append(threading.get_ident())
        stack.callback(_inside.pop)
        if len(_inside) == 1:
            casts = autocast_kernels()
            _register(stack, "AutocastCPU", casts, casts.keys() & operators_with("AutocastCPU"))
            _register(stack, "AutogradCPU", cuda_operators.KERNELS, cuda_operators.KERNELS.keys())
            stack.enter_context(weights_cast_once())
            stack.callback(group_as_cuda(_is_inside))
        yield


def _is_inside() -> bool:
    return _inside[:1] == [threading.get_ident()]


def _register(stack: ExitStack, key: str, kernels: Mapping[str, Kernel | None], known: Collection[str]) -> None:
    """Register kernels for a dispatch key; torch has some of its own for those that are known to it."""
    originals = {name: torch.library.get_kernel(f"aten::{name}", key).call_boxed for name in known}
    library = stack.enter_context(torch.library._scoped_library("aten", "IMPL", key))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced is the purpose
        for name, kernel in kernels.items():
            library.impl(
                name, _by_thread(name, key, kernel, originals.get(name)), allow_override=True, with_keyset=True
            )


def _by_thread(name: str, key: str, ours: Kernel | None, theirs: Callable[..., Any] | None) -> Kernel:
    """Return a kernel: ``ours`` in the thread that is inside, ``theirs`` elsewhere; ``None`` falls through."""
    below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, key))
    called = overload_of(name)

    def kernel(keyset: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        if _is_inside():
            return ours(*args, **kwargs) if ours else called.redispatch(keyset & below, *args, **kwargs)
        return theirs(keyset, *args, **kwargs) if theirs else called.redispatch(keyset & below, *args, **kwargs)

    return kernel
