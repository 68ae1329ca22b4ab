"""What is known of the content of tensors without data: constants that a module makes, and storages that are equal.

Transformers asks its masks whether anything is padded at all, and leaves out those that hide nothing. A mask out of a
batch has no content here. One that a module makes itself (``torch.ones``, places counted by ``arange``) has, and what
follows from it is computed beside the trace, on real tensors.

So is what follows from *told* tensors: real ones that say sizes, such as how many patches a picture has. Models read
them (``grid_thw.tolist()``), pick by masks and repeat by counts that follow from them; how large the result is can be
told then.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from trainauto.memory.tracing.operators import Operator

MOST_ELEMENTS = 1 << 20
"""Larger contents are not computed: 8 MiB of whole numbers, 1 ms; a mask of 64 texts of 16,384 tokens."""

_READ_BY_PYTHON = ("tolist", "__index__", "__float__")

_aten = torch.ops.aten


class UnknownContentError(Exception):
    """An operator's arguments are not all known, or what it gives is too large or no content at all."""


class Contents:
    """Contents of the storages of a trace, as far as they are known.

    A storage that is known has a twin with data. Views of it need no more, and what writes into it writes into both.

    Args:
        told: real tensors whose values are those of a run, wherever they are used.
    """

    def __init__(self, told: Sequence[Tensor] = ()) -> None:
        self._told = {id(tensor): tensor for tensor in told}
        self._known: dict[int, _Known] = {}
        # Storages with an equal number have equal values.
        self._numbers: dict[int, int] = {}
        self._last_number = 0

    @property
    def is_told(self) -> bool:
        """Whether something is known from the first."""
        return bool(self._told)

    def forget(self, key: int) -> None:
        """Drop what is known of a storage, by its address: it has ended, or was written."""
        self._numbers.pop(key, None)
        self._known.pop(key, None)

    def note_write(self, tensor: Tensor) -> None:
        """Keep account of a tensor that was written with unknown values."""
        self._known.pop(_key(tensor), None)
        self._renumber(tensor)

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
            computes: constants and real tensors have contents, too, not only numbers.
        """
        follows = operator.is_determined and self._are_known((args, kwargs), or_real=computes)
        written = [
            tensor
            for position, name in operator.writes
            for tensor in tensors_in(args[position] if position < len(args) else kwargs.get(name))
        ]
        if written:
            self._note_writes(func, args, kwargs, written, follows=follows)
            return
        if operator.copies:
            self._numbers[_key(out)] = self._number_of(args[0])
        if operator.makes_constants and computes:
            self._keep(out, func, _without_values(args), kwargs)
        elif follows and not operator.makes_constants:
            self._keep(out, func, args, kwargs)

    def note_lift(self, tensor: Tensor, number: Tensor) -> None:
        """Keep what was written down as numbers, such as ``torch.tensor([1, 2])``."""
        if _is_computable(tensor):
            self._know(tensor, number)

    def is_known(self, tensor: Tensor) -> bool:
        """Say whether the content of a tensor is known."""
        return _key(tensor) in self._known

    def read(self, func: Any, args: Sequence[Any]) -> bool | int | float | None:
        """Return the value that an operator reads out of tensors; ``None`` where their content is not known."""
        if func is _aten.equal.default and self._are_equal(args[0], args[1]):
            return True
        try:
            return self._run(func, args, {})  # type: ignore[no-any-return]
        except UnknownContentError:
            return False if func is _aten.equal.default else None

    @contextmanager
    def read_at_once(self) -> Iterator[None]:
        """Have fake tensors whose content is known give it to Python without an operator for each number.

        ``tolist`` would take half of some traces so. ``torch.tensor`` of a list of tensors asks where no mode sees it.
        """
        own = {name: vars(FakeTensor)[name] for name in _READ_BY_PYTHON if name in vars(FakeTensor)}
        for name in _READ_BY_PYTHON:
            setattr(FakeTensor, name, self._reader(name, getattr(FakeTensor, name)))
        try:
            yield
        finally:
            for name in _READ_BY_PYTHON:
                if name in own:
                    setattr(FakeTensor, name, own[name])
                else:
                    delattr(FakeTensor, name)

    def _reader(self, name: str, original: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        def read(tensor: Tensor) -> Any:
            if not self.is_known(tensor):
                return original(tensor)
            with _disable_current_modes():
                return getattr(self._contents_in(tensor), name)()

        return read

    def sized(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what an operator gives, of the size that follows from contents, as fake tensors.

        What is picked need not be known, only what picks: by masks, or by how often.

        Raises:
            UnknownContentError: that is not known, either.
        """
        if func is _aten.index.Tensor:
            return func(args[0], [place for index in args[1] for place in self._places(index)])
        if func is _aten.masked_select.default:
            source, mask = args
            whole = torch.broadcast_shapes(source.shape, mask.shape)  # type: ignore[no-untyped-call]
            return source.new_empty(self._picked(mask, whole))
        device = next(tensors_in(args)).device
        sizes = [(content.shape, content.dtype) for content in tensors_in((self._run(func, args, kwargs),))]
        made = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in sizes]
        return made[0] if len(made) == 1 else tuple(made)

    def _places(self, index: Tensor | None) -> Sequence[Tensor | None]:
        """Return indices as many as a mask picks; others as they are."""
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            return (index,)
        count = self._picked(index, index.shape)
        return [torch.empty(count, dtype=torch.long, device=index.device) for _ in range(index.ndim)]

    def _picked(self, mask: Tensor, shape: torch.Size) -> int:
        """Return how many places a mask picks of a tensor; what repeats along a dimension is counted once."""
        content = self._contents_in(mask)
        with _disable_current_modes():
            whole = content.expand(shape)
            steps = whole.stride()
            once = [1 if step == 0 else size for size, step in zip(shape, steps, strict=True)]
            times = prod(size for size, step in zip(shape, steps, strict=True) if step == 0)
            return times * int(whole.as_strided(once, steps).count_nonzero())

    def _note_writes(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], written: Sequence[Tensor], *, follows: bool
    ) -> None:
        """Keep account of what was written: into the twins, too, where all is known."""
        if follows and all(isinstance(tensor, FakeTensor) for tensor in written):
            try:
                self._run(func, args, kwargs)
            except UnknownContentError:
                follows = False
        for tensor in written:
            if follows:
                self._renumber(tensor)
            else:
                self.note_write(tensor)

    def _are_known(self, values: Any, *, or_real: bool) -> bool:
        """Say whether the content of all tensors is known, and there is one."""
        tensor = None
        for tensor in tensors_in(values):
            if isinstance(tensor, FakeTensor):
                if _key(tensor) not in self._known:
                    return False
            elif not or_real and id(tensor) not in self._told:
                return False
        return tensor is not None

    def _keep(self, out: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Keep the content of what an operator gave, if it can be computed."""
        made = list(tensors_in((out,)))
        # Views of what is known are known.
        if all(not _is_computable(tensor) or _key(tensor) in self._known for tensor in made):
            return
        try:
            contents = list(tensors_in((self._run(func, args, kwargs),)))
        except UnknownContentError:
            return
        for tensor, content in zip(made, contents, strict=True):
            if _is_computable(tensor) and (tensor.dtype, tensor.shape) == (content.dtype, content.shape):
                self._know(tensor, content)

    def _know(self, tensor: Tensor, content: Tensor) -> None:
        key, storage = _key(tensor), tensor.untyped_storage()
        if key in self._known:
            return
        with _disable_current_modes():
            twin = torch.UntypedStorage(storage.nbytes())  # type: ignore[no-untyped-call]
            if (twin.nbytes(), *_view(tensor)) == (content.untyped_storage().nbytes(), *_view(content)):
                twin.copy_(content.untyped_storage())  # all of it, for others may view the rest
            else:
                _seen_as(twin, tensor).copy_(content)
        self._known[key] = _Known(weakref.ref(storage, partial(self._end, key)), twin)

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
            known = self._known.get(_key(value))
            if known is None:
                raise UnknownContentError
            with _disable_current_modes():
                return _seen_as(known.twin, value)
        if isinstance(value, list | tuple):
            return type(value)(self._contents_in(entry) for entry in value)
        if isinstance(value, dict):
            return {name: self._contents_in(entry) for name, entry in value.items()}
        return value

    def _end(self, key: int, _storage: Any) -> None:
        self.forget(key)

    def _renumber(self, tensor: Tensor) -> None:
        self._last_number += 1
        self._numbers[_key(tensor)] = self._last_number

    def _number_of(self, tensor: Tensor) -> int:
        if _key(tensor) not in self._numbers:
            self._renumber(tensor)
        return self._numbers[_key(tensor)]

    def _are_equal(self, first: Tensor, other: Tensor) -> bool:
        """Say whether ``other`` is a copy of ``first`` and neither was written since."""
        return first.shape == other.shape and self._number_of(first) == self._number_of(other)


class _Known(NamedTuple):
    """A storage whose content is known.

    Attributes:
        storage: calls back when it ends.
        twin: a real one of as many bytes.
    """

    storage: weakref.ref[Any]
    twin: torch.UntypedStorage


def _is_computable(tensor: Tensor) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.layout == torch.strided and tensor.numel() <= MOST_ELEMENTS


def _seen_as(twin: torch.UntypedStorage, tensor: Tensor) -> Tensor:
    """Return a real storage as a tensor lies in its own."""
    seen = torch.empty(0, dtype=tensor.dtype)
    return seen.set_(twin, tensor.storage_offset(), tensor.shape, tensor.stride())


def _without_values(args: Sequence[Any]) -> list[Any]:
    """Return real tensors of one number for fake ones of which the shape alone matters."""
    with _disable_current_modes():
        return [torch.empty((), dtype=arg.dtype).expand(arg.shape) if isinstance(arg, Tensor) else arg for arg in args]


def _view(tensor: Tensor) -> Any:
    return tensor.storage_offset(), tensor.stride()


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
