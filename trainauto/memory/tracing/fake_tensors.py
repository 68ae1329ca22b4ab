"""A world of fake tensors: shapes, types and devices without data, in which real modules can be built and trained.

``FakeTensorMode`` alone stumbles over what models do on the way: ``module.to(...)`` cannot swap fake parameters, copies
of fake modules lose their parameters, and optimizers take fake tensors one by one where they would take real ones all
at once. All three are mended for as long as a world is open.
"""

import copy
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensor, FakeTensorMode
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _disable_current_modes

from trainauto.memory.tracing.four_bit_linear import FourBitLinear, four_bit_layers, stand_in_of

T = TypeVar("T")
Convert = Callable[[Tensor], Tensor]

TURN = threading.RLock()
"""Held by the thread that changes torch for a while: changes of two would be undone in the wrong order."""


@contextmanager
def fake_world(mode: FakeTensorMode | None = None) -> Iterator[FakeTensorMode]:
    """Open a world in which tensors are fake; real ones that come in (constants of a module) are taken as they are.

    It changes ``nn.Module`` while it is open, for fake parameters only; a second thread waits for its turn.

    Args:
        mode: that of a world to go back to; tensors know theirs and work in no other.
    """
    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
    with TURN, _convertible_modules(), _copyable_tensors(), _grouped_tensors(), _failures_only_raised(), mode:
        yield mode


def as_fake(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Return a fake copy of a real module; the module is left as it is."""
    return fake_copy(module, mode, {})


def fake_copy(value: T, mode: FakeTensorMode, memo: dict[int, Any]) -> T:
    """Return a deep copy of modules, optimizers or anything else in which all tensors are fake.

    Layers in 4 bits, which cannot be copied, become stand-ins of the same bytes (``four_bit_linear.py``).

    Args:
        value: is left as it is.
        mode: of the fake tensors.
        memo: as for ``copy.deepcopy``: what was copied already, by the address of the original.
    """
    modules = [module for module in (value if isinstance(value, tuple) else (value,)) if isinstance(module, nn.Module)]
    with _CopyMode(mode):
        for layer in chain.from_iterable(map(four_bit_layers, modules)):
            if not isinstance(layer, FourBitLinear):
                memo[id(layer)] = stand_in_of(layer, lambda tensor: copy.deepcopy(tensor, memo))
        return copy.deepcopy(value, memo)


class _CopyMode(FakeCopyMode):
    """Copies outputs that a module has kept without the graph that they come from, which is no part of it."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            if id(tensor) not in memo:
                with _disable_current_modes():
                    alone = tensor.detach()
                memo[id(tensor)] = self.fake_mode.from_tensor(alone, static_shapes=True)
            return memo[id(tensor)]
        return super().__torch_function__(func, types, args, kwargs)


@contextmanager
def _convertible_modules() -> Iterator[None]:
    original = nn.Module._apply

    def apply(self: nn.Module, fn: Convert, recurse: bool = True) -> nn.Module:
        if not any(isinstance(parameter, FakeTensor) for parameter in self._parameters.values()):
            return cast(nn.Module, original(self, fn, recurse))  # type: ignore[no-untyped-call]
        for child in self.children() if recurse else ():
            child._apply(fn)  # type: ignore[no-untyped-call]
        for parameter in self._parameters.values():
            if parameter is not None:
                _convert(parameter, fn)
                if parameter.grad is not None:
                    _convert(parameter.grad, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    nn.Module._apply = apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]


def _convert(tensor: Tensor, fn: Convert) -> None:
    """Change a tensor in place, as ``module.to`` does with real ones: optimizers and tied weights keep hold of it."""
    with torch.no_grad():
        changed = fn(tensor)
    if changed is not tensor:
        tensor.data = changed
        cast(FakeTensor, tensor).fake_device = cast(FakeTensor, changed).fake_device


@contextmanager
def _copyable_tensors() -> Iterator[None]:
    def deepcopy(self: FakeTensor, memo: dict[int, Any]) -> Tensor:
        with torch.no_grad(), self.fake_mode:
            duplicate: Tensor = self.detach().clone()
            if isinstance(self, nn.Parameter):
                duplicate = nn.Parameter(duplicate, self.requires_grad)
            else:
                duplicate.requires_grad_(self.requires_grad)
        memo[id(self)] = duplicate
        return duplicate

    FakeTensor.__deepcopy__ = deepcopy  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del FakeTensor.__deepcopy__


@contextmanager
def _grouped_tensors() -> Iterator[None]:
    """Have optimizers and clipping choose their ``foreach`` forms as for real tensors; those take more memory."""
    lists = (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types)
    for types in lists:
        types.append(FakeTensor)
    try:
        yield
    finally:
        for types in lists:
            types.remove(FakeTensor)


@contextmanager
def _failures_only_raised() -> Iterator[None]:
    """Keep torch from logging the traceback of an operator that refuses its shapes; it raises, too."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def group_as_cuda(applies: Callable[[], bool] = lambda: True) -> Callable[[], None]:
    """Let optimizers group the tensors of a CPU by default, as they do those of a GPU; for the whole process.

    Args:
        applies: says of a call whether it is meant.

    Returns:
        what undoes it.
    """
    original = _foreach_utils._get_foreach_kernels_supported_devices
    grouped = "_get_foreach_kernels_supported_devices"
    setattr(optimizer, grouped, lambda: [*original(), "cpu"] if applies() else original())
    return lambda: setattr(optimizer, grouped, original)


def warm_up() -> None:
    """Run a little of everything, since torch loads much of what fake tensors need when it is first used."""
    with fake_world():
        layer = nn.Sequential(nn.Conv2d(3, 4, 3), nn.PixelShuffle(2))
        adam = torch.optim.Adam(layer.parameters())
        layer(torch.empty(1, 3, 8, 8)).abs().mean().backward()
        adam.step()
