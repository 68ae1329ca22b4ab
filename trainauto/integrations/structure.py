"""Batches of any make as named leaves, and back: dicts, lists, tuples, named tuples, BatchEncodings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainauto.core.errors import InputError

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
    if isinstance(node, tuple | list) and any(isinstance(child, Tensor | Mapping | tuple | list) for child in node):
        return [(str(place), child) for place, child in enumerate(node)]
    return None


@dataclass(frozen=True)
class Structure:
    """How the leaves of a batch are put together again.

    Attributes:
        kind: type of the container; ``None`` for a leaf.
        keys: what it is asked by: keys of a mapping, places of a sequence.
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
        keys = tuple(batch) if isinstance(batch, Mapping) else tuple(range(len(batch)))
        return cls(type(batch), keys, tuple(cls.of(child) for _, child in children))

    def without_missing(self, leaves: Mapping[str, Any]) -> "Structure":
        """Return the structure without what was added to mappings and is not among these leaves."""
        return self._present(leaves, ()) or self

    def _present(self, leaves: Mapping[str, Any], path: tuple[str, ...]) -> "Structure | None":
        if self.kind is None:
            return self if (".".join(path) or ALONE) in leaves else None
        pairs = zip(self.keys, self.children, strict=True)
        kept = {key: found for key, child in pairs if (found := child._present(leaves, (*path, str(key)))) is not None}
        if len(kept) < len(self.keys) and (not kept or not issubclass(self.kind, Mapping)):
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


def _container(kind: Any, keys: Sequence[Any], children: list[Any]) -> Any:
    if issubclass(kind, Mapping):
        content = dict(zip(keys, children, strict=True))
        if kind is dict:
            return content
        try:
            return kind(content)
        except TypeError:
            return content
    if hasattr(kind, "_fields"):
        return kind(*children)
    return kind(children)
