"""What is known of the content of tensors without data: constants that a module makes, and storages that are equal.

Transformers asks its masks whether anything is padded at all, and leaves out those that hide nothing. A mask out of a
batch has no content here. One that a module makes itself (``torch.ones``, places counted by ``arange``) has, and what
follows from it is computed beside the trace, on real tensors.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from trainauto.memory.tracing.operators import Operator

MOST_ELEMENTS = 1 << 20
"""Larger contents are not computed: 8 MiB of whole numbers, 1 ms; a mask of 64 texts of 16,384 tokens."""


class UnknownContentError(Exception):
    """An operator's arguments are not all known, or what it gives is too large or no content at all."""


class Contents:
    """Contents of the storages of a trace, as far as they are known."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        # Storages with an equal number have equal values.
        self._numbers: dict[int, int] = {}
        self._last_number = 0

    def forget(self, key: int) -> None:
        """Drop what is known of a storage, by its address: it has ended, or was written."""
        self._numbers.pop(key, None)
        self._known.pop(key, None)

    def note_write(self, tensor: Tensor) -> None:
        """Keep account of a tensor that was written."""
        key = _key(tensor)
        self.forget(key)
        self._last_number += 1
        self._numbers[key] = self._last_number

    def note(
        self, func: Any, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, *, computes: bool
    ) -> None:
        """Keep account of what an operator wrote, copied, or made.

        Args:
            func: the operator.
            operator: facts about it.
            args: what it was called with.
            kwargs: the same by name.
            out: what it gave.
            computes: constants have contents, too, not only numbers.
        """
        for position, name in operator.writes:
            for tensor in tensors_in(args[position] if position < len(args) else kwargs.get(name)):
                self.note_write(tensor)
        if operator.copies:
            self._numbers[_key(out)] = self._number_of(args[0])
        if computes and isinstance(out, FakeTensor) and out.layout == torch.strided and out.numel() <= MOST_ELEMENTS:
            if operator.makes_constants:
                self._keep(out, func, _without_values(args), kwargs)
            elif self._known and operator.is_determined and next(tensors_in(args), None) is not None:
                self._keep(out, func, args, kwargs)

    def is_known(self, tensor: Tensor) -> bool:
        """Say whether the content of a tensor is known."""
        return self._content_of(tensor) is not None

    def read(self, func: Any, args: Sequence[Any]) -> bool | int | float | None:
        """Return the value that an operator reads out of tensors; ``None`` where their content is not known."""
        if func is torch.ops.aten.equal.default and self._are_equal(args[0], args[1]):
            return True
        try:
            return self._run(func, args, {})  # type: ignore[no-any-return]
        except UnknownContentError:
            return False if func is torch.ops.aten.equal.default else None

    def _keep(self, out: Tensor, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Keep the content of what an operator gave, if it can be computed."""
        try:
            content = self._run(func, args, kwargs)
        except UnknownContentError:
            return
        if content.dtype != out.dtype or content.shape != out.shape:
            return
        key = _key(out)
        if key not in self._known:
            self._known[key] = _Known(weakref.ref(out.untyped_storage(), partial(self._end, key)), {})
        self._known[key].by_view[_view(out)] = content

    def _run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator on contents.

        Raises:
            UnknownContentError: one of them is not known, or there is no such kernel on a CPU.
        """
        known_args, known_kwargs = self._contents_in(args), self._contents_in(dict(kwargs))
        if known_kwargs.get("device") is not None:
            known_kwargs["device"] = torch.device("cpu")
        try:
            with _disable_current_modes(), torch.no_grad():
                return func(*known_args, **known_kwargs)
        except RuntimeError as error:
            raise UnknownContentError from error

    def _contents_in(self, value: Any) -> Any:
        if isinstance(value, FakeTensor):
            content = self._content_of(value)
            if content is None:
                raise UnknownContentError
            return content
        if isinstance(value, list | tuple):
            return type(value)(self._contents_in(entry) for entry in value)
        if isinstance(value, dict):
            return {name: self._contents_in(entry) for name, entry in value.items()}
        return value

    def _content_of(self, tensor: Tensor) -> Tensor | None:
        known = self._known.get(_key(tensor))
        return None if known is None else known.by_view.get(_view(tensor))

    def _end(self, key: int, _storage: Any) -> None:
        self._known.pop(key, None)

    def _number_of(self, tensor: Tensor) -> int:
        key = _key(tensor)
        if key not in self._numbers:
            self._last_number += 1
            self._numbers[key] = self._last_number
        return self._numbers[key]

    def _are_equal(self, first: Tensor, other: Tensor) -> bool:
        """Say whether ``other`` is a copy of ``first`` and neither was written since."""
        return first.shape == other.shape and self._number_of(first) == self._number_of(other)


class _Known(NamedTuple):
    """The contents of tensors on a storage.

    Attributes:
        storage: calls back when it ends.
        by_view: real tensors by how they lie in it.
    """

    storage: weakref.ref[Any]
    by_view: dict[Any, Tensor]


def _without_values(args: Sequence[Any]) -> list[Any]:
    """Return real tensors for fake ones of which the shape alone matters."""
    with _disable_current_modes():
        return [torch.empty(arg.shape, dtype=arg.dtype) if isinstance(arg, Tensor) else arg for arg in args]


def _view(tensor: Tensor) -> Any:
    return tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors among arguments or results of an operator."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
