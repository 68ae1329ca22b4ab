"""Batches of any make as named leaves, and back: dicts, lists, tuples, named tuples, dataclasses, BatchEncodings."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor

from trainauto.core.errors import InputError, Problem

ALONE = "batch"
"""Name of the leaf where a batch is one tensor."""


def leaves_of(batch: Any) -> dict[str, Any]:
    """Return what a batch holds by its path: ``{"image": {"left": t}}`` gives ``image.left``.

    Lists of what are no containers and no tensors (names, texts) are leaves as a whole.

    Raises:
        InputError: two leaves have the same path.
    """
    leaves: dict[str, Any] = {}
    for path, leaf in _walk(batch, ()):
        name = ".".join(path) or ALONE
        if name in leaves:
            raise InputError(f"a batch has two parts called '{name}': keys with dots cannot be told from nested ones")
        leaves[name] = leaf
    return leaves


def _walk(node: Any, path: tuple[str, ...]) -> "list[tuple[tuple[str, ...], Any]]":
    children = _children(node)
    if children is None:
        return [(path, node)]
    return [item for key, child in children for item in _walk(child, (*path, key))]


def _children(node: Any) -> list[tuple[str, Any]] | None:
    """Return what a container holds; ``None`` where a node is a leaf."""
    if isinstance(node, Mapping):
        return [(str(key), child) for key, child in node.items()]
    if _is_object(type(node)):
        return [(name, getattr(node, name)) for name in _attributes(node)]
    if isinstance(node, tuple | list) and any(isinstance(child, Tensor | Mapping | tuple | list) for child in node):
        return [(str(place), child) for place, child in enumerate(node)]
    return None


def _is_object(kind: type[Any]) -> bool:
    """Say whether instances of a class hold their parts as attributes."""
    return is_dataclass(kind) and not issubclass(kind, Mapping)


def _attributes(node: Any) -> list[str]:
    """Return the names of what an instance of a dataclass holds: fields that are set, and what was put beside them."""
    set_fields = [field.name for field in fields(node) if hasattr(node, field.name)]
    return list(dict.fromkeys([*set_fields, *getattr(node, "__dict__", {})]))


@dataclass(frozen=True)
class Structure:
    """How the leaves of a batch are put together again.

    Attributes:
        kind: type of the container; ``None`` for a leaf.
        keys: what it is asked by: keys of a mapping, names of attributes, places of a sequence.
        children: of each key.
    """

    kind: type[Any] | None = None
    keys: tuple[Any, ...] = ()
    children: "tuple[Structure, ...]" = ()

    @classmethod
    def of(cls, batch: Any) -> "Structure":
        """Learn it from a batch."""
        children = _children(batch)
        if children is None:
            return cls()
        return cls(type(batch), _keys_of(batch), tuple(cls.of(child) for _, child in children))

    def without_missing(self, leaves: Mapping[str, Any]) -> "Structure":
        """Return the structure without what was added to mappings and objects and is not among these leaves."""
        return self._present(leaves, ()) or self

    def _present(self, leaves: Mapping[str, Any], path: tuple[str, ...]) -> "Structure | None":
        if self.kind is None:
            return self if (".".join(path) or ALONE) in leaves else None
        pairs = zip(self.keys, self.children, strict=True)
        kept = {key: found for key, child in pairs if (found := child._present(leaves, (*path, str(key)))) is not None}
        may_lack = issubclass(self.kind, Mapping) or _is_object(self.kind)
        if len(kept) < len(self.keys) and not (kept and may_lack):
            return None
        return Structure(self.kind, tuple(kept), tuple(kept.values()))

    @property
    def is_mapping(self) -> bool:
        """Whether the whole batch is asked by keys, so that a loss may add to it."""
        return self.kind is not None and issubclass(self.kind, Mapping)

    def rebuild(self, leaves: Mapping[str, Any]) -> Any:
        """Return the batch of these leaves; those it did not have when it was learned become keys of a mapping.

        Raises:
            InputError: a leaf is missing.
        """
        names: list[str] = []
        batch = self._rebuilt(leaves, (), names)
        extra = {name: leaf for name, leaf in leaves.items() if name not in names}
        if extra and not self.is_mapping:
            raise InputError(
                f"{', '.join(extra)} cannot be handed on: batches are no mappings; let the dataset return dicts"
            )
        for name, leaf in extra.items():
            batch[name] = leaf
        return batch

    def _rebuilt(self, leaves: Mapping[str, Any], path: tuple[str, ...], names: list[str]) -> Any:
        if self.kind is None:
            name = ".".join(path) or ALONE
            if name not in leaves:
                raise InputError(f"a batch lacks '{name}', which the first one had: batches must all be made alike")
            names.append(name)
            return leaves[name]
        built = [
            child._rebuilt(leaves, (*path, str(key)), names)
            for key, child in zip(self.keys, self.children, strict=True)
        ]
        return _container(self.kind, self.keys, built)


def _keys_of(batch: Any) -> tuple[Any, ...]:
    if isinstance(batch, Mapping):
        return tuple(batch.keys())  # iterating a TensorDict gives its rows
    return tuple(_attributes(batch)) if _is_object(type(batch)) else tuple(range(len(batch)))


def _container(kind: Any, keys: Sequence[Any], children: list[Any]) -> Any:
    """Return a container of some kind that holds these children.

    Raises:
        InputError: there is no way to make one.
    """
    if issubclass(kind, Mapping):
        return _mapping(kind, dict(zip(keys, children, strict=True)))
    if _is_object(kind):  # not by its constructor: what that makes of its arguments is among the children
        made = object.__new__(kind)
        for name, child in zip(keys, children, strict=True):
            object.__setattr__(made, name, child)
        return made
    try:
        return kind(*children) if hasattr(kind, "_fields") else kind(children)
    except TypeError:
        raise _cannot_be_made(kind) from None


def _mapping(kind: Any, content: dict[Any, Any]) -> Any:
    """Return a mapping of some kind that holds just this content.

    Raises:
        InputError: no way of making one gives that.
    """
    if kind is dict:
        return content
    ways: list[Callable[[], Any]] = [lambda: kind(content), lambda: kind(**content), lambda: _filled(kind(), content)]
    for way in ways:
        with suppress(Exception):  # whatever a constructor that takes something else raises
            made = way()
            if list(made.keys()) == list(content) and all(made[key] is value for key, value in content.items()):
                return made
    raise _cannot_be_made(kind)


def _filled(mapping: Any, content: dict[Any, Any]) -> Any:
    mapping.update(content)
    return mapping


def _cannot_be_made(kind: type[Any]) -> InputError:
    message = f"a batch holds a {kind.__name__}, which cannot be made again of its parts where a batch is divided"
    advice = "Have collate_fn return tensors, tuples, dicts or dataclasses; or a class that is called with a dict."
    return InputError(Problem(message, advice=advice))
