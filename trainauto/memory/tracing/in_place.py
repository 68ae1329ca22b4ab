"""Results that torch writes in place, except while a dispatch mode looks on.

Code of torch in C++ writes into a tensor that nobody else holds. Under a mode every tensor passes for one of a subclass
(``isTensorSubclassLike``, ATen/TensorSubclassLikeUtils.h), and the same code asks for the operator that gives a new
tensor. A step that is followed would so allocate more than the same step in a run:

- where backward adds up gradients that meet (``accumulate``, torch/csrc/autograd/input_buffer.cpp);
- where the backward of indexing and gathering writes into zeros that it has just made (``index_backward``,
  ``gather_backward`` and others, torch/csrc/autograd/FunctionsManual.cpp);
- where the backward of ``maximum``, ``clamp``, ``atan2`` and the like sets a part of a tensor to 0 (there, too);
- where the backward of ``binary_cross_entropy_with_logits`` subtracts and multiplies (there, too);
- where ``linear`` adds its bias to a product (ATen/native/Linear.cpp), and attention that is written out its mask
  (ATen/native/transformers/attention.cpp).

Such calls differ from those of the model in who holds the tensor that would be written: one owner in C++ and none
beside it. How that shows in counts is looked up once, in a graph of which it is known.
"""

import functools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten

ADD = _aten.add.Tensor
OF_LOGITS = frozenset({_aten.sub.Tensor, _aten.mul.Tensor})
"""Written in place in the backward of a cross entropy of logits, and nowhere else."""

LOGITS_NODE = "BinaryCrossEntropyWithLogitsBackward0"

WRITES = {
    ADD: _aten.add_.Tensor,
    _aten.index_put.default: _aten.index_put_.default,
    _aten.scatter_add.default: _aten.scatter_add_.default,
    _aten.scatter.src: _aten.scatter_.src,
    _aten.index_add.default: _aten.index_add_.default,
    _aten.sub.Tensor: _aten.sub_.Tensor,
    _aten.mul.Tensor: _aten.mul_.Tensor,
    _aten.masked_fill.Scalar: _aten.masked_fill_.Scalar,
    _aten.logical_and.default: _aten.logical_and_.default,
    _aten.logical_or.default: _aten.logical_or_.default,
}
"""What torch calls under a mode, and what it calls without one."""

_BOUNDS = ("ClampBackward", "ClampMaxBackward", "ClampMinBackward")
_EXTREMES = ("MaximumBackward", "MinimumBackward", "FmaxBackward", "FminBackward")

ONLY_IN = {
    _aten.masked_fill.Scalar: (*_BOUNDS, *_EXTREMES, "Atan2Backward"),
    _aten.logical_and.default: _BOUNDS,
    _aten.logical_or.default: _BOUNDS,
    _aten.index_put.default: ("IndexBackward", "UnsafeIndexBackward"),
}
"""Nodes that write with the operator; others call it for a new tensor without a mode, too."""

OWN_SUM = ("Atan2Backward", "StdMeanBackward", "VarMeanBackward")
"""Nodes that add up two tensors of their own, into a new one; what is added up later meets their results.

A mean and a variance are taken to be used both: where only one is, the first sum counts a new tensor more.
"""

Holders = tuple[int, int, int]


def holders(tensor: Tensor) -> Holders:
    """Return how many hold a tensor, its storage, and its object in Python; as seen from within an operator."""
    uses: int = tensor._use_count()  # type: ignore[attr-defined]
    return uses, torch._C._storage_Use_Count(tensor.untyped_storage()._cdata), sys.getrefcount(tensor)


class InPlaceWrites:
    """Tells, of one operator after another, which torch would let write into their first argument without a mode.

    Args:
        sole: what :func:`sole_holders` says.
    """

    def __init__(self, sole: Mapping[Any, Collection[Holders]]) -> None:
        self._sole = sole
        self._own_sum_of = (-1, -1)  # the last node of OWN_SUM, by its backward pass and its number in the graph

    def has(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], held: Holders, *, is_product: bool
    ) -> bool:
        """Say whether the next operator is one.

        Args:
            func: one of :data:`WRITES`.
            args: its arguments, of which the first is a tensor.
            kwargs: of the same call.
            held: :func:`holders` of the first argument, asked for in the mode's own function.
            is_product: the first argument is what the last matrix product gave.
        """
        target = args[0]
        in_backward = torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()
        if func in OF_LOGITS:  # in a row, of which each holds the storage in C++ until the last
            is_sole = any((held[0], held[2]) == (known[0], known[2]) for known in self._sole.get(func, ()))
            return is_sole and in_backward and _runs(LOGITS_NODE) and _takes(target, args[1])
        if held not in self._sole.get(func, ()):
            return False
        if func is not ADD:
            return in_backward and (func not in ONLY_IN or _runs(*ONLY_IN[func]))
        if kwargs or not isinstance(args[1], Tensor) or (in_backward and self._is_own_sum()):
            return False
        if in_backward:
            return args[1].dtype == target.dtype and args[1].shape == target.shape and _is_dense(target)
        # Attention that is written out adds masks in bfloat16 to products in float32.
        return is_product and target.ndim > 1 and _takes(target, args[1])

    def _is_own_sum(self) -> bool:
        if not _runs(*OWN_SUM):
            return False
        number = torch._C._current_autograd_node()._sequence_nr()
        now, last = (torch._C._current_graph_task_id(), number), self._own_sum_of
        self._own_sum_of = now
        return bool(now != last)


def _runs(*names: str) -> bool:
    """Say whether the node of the graph whose backward runs now is one of such a name."""
    node = torch._C._current_autograd_node()
    return node is not None and bool(node.name().startswith(names))


def _takes(target: Tensor, other: Any) -> bool:
    """Say whether an operator of two tensors gives the type and the shape of the first."""
    stays = isinstance(other, Tensor) and torch.promote_types(other.dtype, target.dtype) == target.dtype
    return stays and _is_broadcast_to(other, target)


def _is_broadcast_to(addend: Tensor, target: Tensor) -> bool:
    """Say whether the sum of both has the shape of the second."""
    pairs = zip(reversed(addend.shape), reversed(target.shape), strict=False)
    return addend.ndim <= target.ndim and all(size in (1, whole) for size, whole in pairs)


def _is_dense(tensor: Tensor) -> bool:
    """Say whether a tensor's elements fill its memory without holes or overlaps, in whatever order."""
    needed = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != needed:
            return False
        needed *= size
    return True


class _Writes(TorchDispatchMode):
    """Notes who holds what would be written in a backward pass."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.observed: dict[Any, set[Holders]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        in_backward = torch._C._current_graph_task_id() != -1
        if func in WRITES and in_backward and (func not in OF_LOGITS or _runs(LOGITS_NODE)):
            self.observed.setdefault(func, set()).add(holders(args[0]))
        return func(*args, **(kwargs or {}))


@functools.cache
def sole_holders() -> Mapping[Any, Collection[Holders]]:
    """Return the counts of a tensor with one owner in C++, by the operator that gets it; none where torch has changed.

    Under autocast, kernels in Python may lie between (``cuda_autocast.py``), which hold it, too: there are counts with
    and without. It runs little backward passes: not to be called from within an operator.
    """
    first = torch.tensor([0, 1])
    cases: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: x.sin() * x.cos(),
        lambda x: x.gather(0, first[None]),
        lambda x: x[first],
        lambda x: x.index_select(0, first),
        lambda x: x.max(dim=0).values,
        lambda x: x.atan2(x),
        lambda x: x.clamp(x, x),
        lambda x: torch.nn.functional.binary_cross_entropy_with_logits(x, torch.zeros(2, 2)),
    )
    with torch.inference_mode(False), torch.enable_grad(), _Writes() as writes:
        for case, casts in product(cases, (False, True)):
            with torch.autocast("cpu", torch.bfloat16, enabled=casts):
                case(torch.ones(2, 2, requires_grad=True).tanh()).sum().backward()  # type: ignore[no-untyped-call]
    observed: dict[Any, set[Holders]] = writes.observed
    return observed
