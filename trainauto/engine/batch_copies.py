"""The leaves of a batch as a step, and a pass of it, found them: losses and models may change them in place."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from trainauto.engine.value_copies import arrays_in, can_be_copied, copy_aside, copy_of, is_same, put_back, versions_of

Copies = dict[str, list[tuple[Any, Any]]]
"""Of each leaf, its tensors and arrays, each with a copy."""


class BatchCopies:
    """What batches are put back by.

    The first step copies all leaves and compares them by value (a trace, which has no values, looks at versions alone);
    later ones copy those that ever changed. A batch that
    was moved to another device is put back from the one that it was moved from. ``Tensor._version`` tells of other
    leaves that they have changed, so that a pass is not run again on what they became.

    Attributes:
        has_learned: whether the last step has changed leaves that none had changed before.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._changing: set[str] = set()
        self._moved: set[str] = set()  # leaves of which the loader's batch is a copy
        self._tensors: Mapping[str, Any] = {}
        self._begins = True
        self._kept: list[Any] = []
        self._first: Copies = {}  # as the step began
        self._copies: Copies = {}  # as the pass began
        self._watched: dict[str, Tensor] = {}  # leaves that are not known to change
        self._versions: list[int] = []  # of these, as the pass began
        self.has_learned = False

    def take(self, tensors: Mapping[str, Any], loaded: Mapping[str, Any]) -> None:
        """Remember the leaves as a pass finds them; the first pass of a step finds those of ``loaded``."""
        self._kept = []
        if self._begins:
            self.has_learned = False
        self._tensors = tensors
        self._copies = {}
        # Most leaves are tensors that never change: they are asked for their version, and nothing else.
        is_known = self._known.issuperset(tensors) and FakeTensor not in map(type, tensors.values())
        asked = self._changing | self._moved if is_known else tensors.keys()
        for name in filter(asked.__contains__, tensors):
            leaf, is_fake = tensors[name], isinstance(tensors[name], FakeTensor)
            if self._begins and (name in self._moved or is_fake) and _is_elsewhere(leaf, loaded.get(name)):
                self._copies[name] = [(leaf, loaded[name])]
            elif name in self._changing or not (name in self._known or is_fake):
                self._copies[name] = self._copied(name, leaf, loaded.get(name) if self._begins else None)
        self._watched = {
            name: leaf for name, leaf in tensors.items() if isinstance(leaf, Tensor) and name not in self._changing
        }
        self._versions = versions_of(self._watched.values())
        if self._begins and tensors:
            self._first, self._begins = self._copies, False

    def note_changes(self) -> list[str]:
        """Note which leaves have changed since the pass began; return those of them that no copy holds."""
        changed = [
            name
            for name, pairs in self._copies.items()
            if name not in self._known
            and not all(is_same(value, copy) for value, copy in pairs if not isinstance(value, FakeTensor))
        ]
        marked = self._marked()
        self.has_learned |= not self._changing.issuperset([*changed, *marked])
        self._changing.update(changed, marked)
        return [name for name in marked if name not in self._copies]

    def put_back(self) -> None:
        """Have all leaves be as the pass found them."""
        _put_back(self._copies.values())

    def give_back(self) -> None:
        """Have all leaves be as the step found them: the batch goes back to the loader."""
        _put_back(self._first.values())
        self._end()

    def share(self, part: Mapping[str, Any]) -> list[str]:
        """Have what all parts of a batch share be as the pass found it, for the next part.

        Returns:
            Leaves that have changed, and that no copy holds.
        """
        shared = {name for name, leaf in part.items() if leaf is self._tensors.get(name)}
        _put_back(pairs for name, pairs in self._copies.items() if name in shared)
        return [name for name in self._marked() if name in shared and name not in self._copies]

    def learn(self) -> None:
        """All passes of a step have stayed: what has not changed by now is not copied any more."""
        self._known |= self._tensors.keys()
        self._end()

    def _end(self) -> None:
        """Let go of the batch; copies of a first step stay until the next one: the meter reads that they are shared."""
        pairs = [pair for name, pairs in self._copies.items() if name not in self._changing for pair in pairs]
        self._kept = [copy for _, copy in pairs]
        self._begins, self._tensors, self._first, self._copies = True, {}, {}, {}
        self._watched, self._versions = {}, []

    def _marked(self) -> list[str]:
        """Return the watched leaves that have another version than as the pass began."""
        now = versions_of(self._watched.values())
        if now == self._versions:
            return []
        return [name for name, old, new in zip(self._watched, self._versions, now, strict=True) if old != new]

    def _copied(self, name: str, leaf: Any, source: Any) -> list[tuple[Any, Any]]:
        if name not in self._known and _is_elsewhere(leaf, source) and is_same(leaf, source):  # pragma: no cuda
            self._moved.add(name)
            return [(leaf, source)]
        arrays = [value for value in arrays_in(leaf) if can_be_copied(value)]
        if isinstance(leaf, Tensor) and leaf.device.type != "cpu":  # pragma: no cuda
            return [(value, value.detach().to("cpu", copy=True)) for value in arrays]
        return [(value, copy_of(value) if name in self._known else copy_aside(value)) for value in arrays]


def _is_elsewhere(leaf: Any, source: Any) -> bool:
    return isinstance(leaf, Tensor) and isinstance(source, Tensor) and leaf.device != source.device


def _put_back(leaves: Iterable[list[tuple[Any, Any]]]) -> None:
    for pairs in leaves:
        for value, copy in pairs:
            if not is_same(value, copy):
                put_back(value, copy)
