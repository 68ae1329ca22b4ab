"""Facts about operators that following their memory needs, looked up once for each."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from trainauto.memory.tracing.in_place import WRITES
from trainauto.memory.tracing.kernel_steps import Kernel
from trainauto.memory.tracing.kernels import KERNELS
from trainauto.memory.tracing.multiplications import COUNTS, Count

Settle = Callable[[Sequence[Any], Any, bool], None]
"""Gives the storages of results their bytes, by the arguments of an operator, its results, and whether on a card."""


def _keep_elements(args: Sequence[Any], out: Any, _on_card: bool) -> None:
    elements = torch.broadcast_shapes(args[0].shape, args[1].shape).numel()  # type: ignore[no-untyped-call]
    _resize(out, elements * out.element_size())


def _drop_buffer(_args: Sequence[Any], out: Any, on_card: bool) -> None:
    """Only the kernel of a CPU has use for it (``log_sigmoid_forward_cuda``, ATen/native/cuda/Activation.cpp)."""
    if on_card:
        _resize(out[1], 0)


def _resize(tensor: Tensor, size_bytes: int) -> None:
    if isinstance(tensor, FakeTensor) and tensor.untyped_storage().nbytes() != size_bytes:
        tensor.untyped_storage().resize_(size_bytes)


SETTLES: Mapping[str, Settle] = {
    **dict.fromkeys(
        ("aten::mse_loss", "aten::smooth_l1_loss", "aten::binary_cross_entropy", "aten::soft_margin_loss"),
        _keep_elements,
    ),
    "aten::log_sigmoid_forward": _drop_buffer,
}
"""By the name of the operator's schema."""


_aten = torch.ops.aten

DEVICE_OF = torch.ops.prim.device.default
"""What a fake tensor's ``device`` is to a dispatch mode: an operator, called more often than all others together."""

HIDDEN_WRITES = frozenset({"running_mean", "running_var"})
"""Arguments that normalisation kernels write to without saying so in their schema."""

_LIFTS = frozenset({"aten::lift", "aten::lift_fresh", "aten::lift_fresh_copy"})

_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "_addmm_activation")
)

_HIDES_MEMORY = re.compile(
    r"(?!aten::|prims::|profiler::)|aten::.*(conv|cudnn|rnn|lstm|gru|fft|linalg|sort|cholesky|_svd|unique)"
)
"""Convolutions, recurrent networks, Fourier transforms, linear algebra, sorting, and operators that are not torch's."""

_ATTENDS = re.compile(r"aten::(_scaled_dot_product_|_safe_softmax$)")

_CONSTANTS = frozenset(
    f"aten::{name}"
    for name in (
        *("arange", "eye", "full", "linspace", "ones", "scalar_tensor", "zeros"),
        *("full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"),
    )
)
"""They give numbers that follow from their arguments, of tensors among them from the shape alone."""

_LEFT_EMPTY = re.compile(r"aten::(_?empty|new_empty)")

_DATA_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Operator(NamedTuple):
    """Facts about one operator.

    Attributes:
        writes: positions and names of the arguments it writes to.
        only_writes: it gives back what it was given first, or nothing, and allocates nothing that outlives it; in a
            world without data it need not be run.
        lifts: it takes the real twin of a constant.
        copies: its result has the content of its first argument.
        reads: it reads a value out of a tensor.
        is_pure: what it gives follows from the shapes and types it is given.
        makes_constants: the content of what it gives follows from numbers and from the shape of its first argument.
        is_determined: the content of what it gives or writes follows from that of what it is given.
        multiplies: on CUDA it is cuBLAS that computes it.
        hides_memory: its kernel is known to take memory that no trace knows, or nothing is known of it.
        attends: attention, for which cards have different kernels.
        kernel: says what its kernel takes on CUDA, in order.
        settle: gives the storages of what it gives their bytes, where shapes do not tell them.
        convolves: on a CPU it works on copies of what it is given, in another order (oneDNN's blocks of channels).
        multiplications: counts them.
        may_write: torch calls it where it would write into the first argument, were no mode looking on.
    """

    writes: tuple[tuple[int, str], ...]
    only_writes: bool
    lifts: bool
    copies: bool
    reads: bool = False
    is_pure: bool = False
    makes_constants: bool = False
    is_determined: bool = False
    may_write: bool = False
    multiplies: bool = False
    hides_memory: bool = False
    attends: bool = False
    kernel: Kernel | None = None
    settle: Settle | None = None
    convolves: bool = False
    multiplications: Count | None = None


_known: dict[int, Operator] = {}


def facts_of(func: Any) -> Operator:
    """Return the facts of an operator; operators live for ever, so their address names them (their hash is slow)."""
    facts = _known.get(id(func))
    if facts is None:
        facts = _known[id(func)] = _facts_of(func)
    return facts


def _facts_of(func: Any) -> Operator:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return Operator((), only_writes=False, lifts=False, copies=False)
    writes = tuple(
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.name in HIDDEN_WRITES or (argument.alias_info is not None and argument.alias_info.is_write)
    )
    is_pure = schema.name.startswith("aten::") and not writes and not _DATA_TAGS.intersection(func.tags)
    # Kernels that draw, leave empty, or change a tensor's shape in place tell nothing when they run beside a trace.
    is_open = {torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view}.intersection(func.tags)
    is_determined = schema.name.startswith("aten::") and not is_open and not _LEFT_EMPTY.match(schema.name)
    return Operator(
        writes,
        only_writes=_only_writes(func, schema, writes),
        lifts=schema.name in _LIFTS,
        copies=func is _aten.clone.default,
        reads=func is _aten._local_scalar_dense.default,
        is_pure=is_pure,
        makes_constants=is_pure and schema.name in _CONSTANTS,
        is_determined=is_determined,
        may_write=func in WRITES,
        multiplies=schema.name in _PRODUCTS,
        hides_memory=bool(_HIDES_MEMORY.match(schema.name)),
        attends=bool(_ATTENDS.match(schema.name)),
        kernel=KERNELS.get(schema.name),
        settle=SETTLES.get(schema.name),
        multiplications=COUNTS.get(schema.name),
        convolves=func in (_aten.convolution.default, _aten.convolution_backward.default),
    )


def _only_writes(func: Any, schema: Any, writes: tuple[tuple[int, str], ...]) -> bool:
    if not writes or writes[0][0] != 0 or not schema.name.startswith("aten::"):
        return False
    if torch.Tag.inplace_view in func.tags:  # those that change size or storage: resize_, set_, t_
        return False
    if not schema.returns:
        return True
    returned = [result.alias_info for result in schema.returns]
    return len(returned) == 1 and returned[0] is not None and returned[0].is_write and len(writes) == 1
