"""Answers for questions about data that fake tensors do not have: ``.item()``, ``if mask.any()``, ``tolist()``."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils._python_dispatch import TorchDispatchMode

from trainauto.memory.tracing.contents import Contents, tensors_in
from trainauto.memory.tracing.op_cache import outcome_of
from trainauto.memory.tracing.operators import DEVICE_OF, Operator, facts_of

LARGE_ANSWER = 512.0
"""Far from 0, so that both lie on different sides of most thresholds (255 too); its exponential is still finite."""

OPTIMIZERS_NUMBER = 1.5
"""What optimizers divide by follows from a step count of 1 or more, and from products that are not 1."""

MOST_READS = 300
"""Reads of one step by the model; a loop that ends when a value is small enough would read for ever."""

_OWN_FOLDERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


@dataclass(frozen=True)
class HostRead:
    """A value that the model asked for: what it was (``whole number``, ``number``, ``truth``) and where it asked."""

    kind: str
    place: str


class UnanswerableError(Exception):
    """A read whose answer would have to be true: the message says which and where."""


class AnsweredReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operators, and answers for tensors without data.

    What a step does with losses, norms and loss scaling on the host changes no memory: any answer serves. Answers
    within the model may, see :meth:`answer`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Guarding every operator against being compiled costs as much as following it; nothing is compiled here.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operator."""
        if func is DEVICE_OF and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        return self.run(func, facts_of(func), args, kwargs, optimizing=False)

    def run(
        self, func: Any, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any] | None, *, optimizing: bool
    ) -> Any:
        """Run one operator, or do without where fake tensors leave nothing to compute.

        An optimizer's own numbers, such as its step count, are constants, whose values are known. They are not kept up,
        and read as :data:`OPTIMIZERS_NUMBER`.
        """
        if operator.only_writes and _is_fake(args[0], constants=optimizing):
            return args[0] if isinstance(args[0], Tensor) else None
        if operator.reads and optimizing and isinstance(args[0], FakeTensor):
            kind = kind_of(func, args)
            return OPTIMIZERS_NUMBER if kind is float else kind(1)
        try:
            if operator.is_pure:
                return outcome_of(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            return self.answer(func, args)
        except DynamicOutputShapeException:
            out = self.sized(func, args, kwargs or {})
            if out is None:
                raise
            return out

    def answer(self, func: Any, args: Sequence[Any]) -> bool | int | float:
        """Return what stands for the value that ``func`` would read."""
        return answer_of(kind_of(func, args), large=False)

    def sized(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what ``func`` gives, whose size follows from data; ``None`` where that is not known."""
        del func, args, kwargs


class ConstantReads(AnsweredReads):  # type: ignore[no-untyped-call]
    """Answers truly what follows from constants, as rates of stochastic depth do of ``torch.linspace``."""

    def __init__(self) -> None:
        super().__init__()
        self._contents = Contents()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operator, and keep account of what it makes of constants."""
        operator = facts_of(func)
        if operator.reads and isinstance(args[0], FakeTensor) and self._contents.is_known(args[0]):
            return self.answer(func, args)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if operator.lifts:
            self._contents.note_lift(out, args[0])
        elif operator.makes_constants or any(map(self._contents.is_known, tensors_in((args, kwargs)))):
            self._contents.note(func, operator, args, kwargs or {}, out, computes=True)
        return out

    def answer(self, func: Any, args: Sequence[Any]) -> bool | int | float:
        """Answer by constants where they say it."""
        known = self._contents.read(func, args)
        return super().answer(func, args) if known is None else known


def _is_fake(written: Any, *, constants: bool) -> bool:
    """Say whether what an operator writes to is fake; constants, whose value is known, count only if wanted."""
    if isinstance(written, FakeTensor):
        return constants or written.constant is None
    return (
        isinstance(written, list) and bool(written) and all(_is_fake(entry, constants=constants) for entry in written)
    )


def kind_of(func: Any, args: Sequence[Any]) -> type[bool] | type[int] | type[float]:
    """Return the type of the value that an operator reads."""
    if func is not torch.ops.aten._local_scalar_dense.default:
        return bool  # equal, allclose, is_nonzero
    dtype = args[0].dtype
    if dtype == torch.bool:
        return bool
    return float if dtype.is_floating_point else int


def answer_of(kind: type[bool] | type[int] | type[float], *, large: bool) -> bool | int | float:
    """Return the small or the large answer of a type."""
    return kind(LARGE_ANSWER if large else 0)


def place_of(frame: FrameType | None) -> str:
    """Return where the innermost code outside of torch stands: ``net_arch.py:31 (forward)``."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith((*_OWN_FOLDERS, "<")):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} ({frame.f_code.co_qualname})"
        frame = frame.f_back
    return "an unknown place"


def place_of_error(error: BaseException) -> str:
    """Return the innermost place outside of torch that an error passed."""
    place = None
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if not name.startswith((*_OWN_FOLDERS, "<")):
            place = f"{Path(name).name}:{traceback.tb_lineno} ({traceback.tb_frame.f_code.co_qualname})"
        traceback = traceback.tb_next
    return place or "an unknown place"


class ModelReads:
    """The reads of a model in one step.

    Args:
        large: which of both answers numbers and truths get.
    """

    def __init__(self, *, large: bool) -> None:
        self.values_read: list[HostRead] = []
        self._large = large

    def answer(self, kind: type[bool] | type[int] | type[float]) -> bool | int | float:
        """Note a read and answer it.

        Raises:
            UnanswerableError: a whole number, which may be a size, or the reads do not end.
        """
        place = place_of(sys._getframe(1))
        names: Mapping[Callable[..., Any], str] = {bool: "whether it is true", int: "a whole number", float: "a number"}
        self.values_read.append(HostRead(names[kind], place))
        if kind is int:
            raise UnanswerableError(f"{place} reads a whole number out of a tensor, and sizes may follow from it")
        if len(self.values_read) > MOST_READS:
            raise UnanswerableError(f"{place} reads values out of tensors without end: the step follows its data")
        return answer_of(kind, large=self._large)
