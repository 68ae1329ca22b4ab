"""An option file that is being written, with the answer to each key it was made of."""

from collections.abc import Iterator, Sequence
from typing import Any

from trainauto.conversion.answers import Answer, Kind
from trainauto.conversion.known import Known
from trainauto.options.foreign_files import Project
from trainauto.options.source_locations import KeyPath

TEST_KEYS = {
    "name": (),
    "scale": (),
    "datasets": (),
    "network_g": (),
    "path": ("results_root", "pretrain_network_g", "param_key_g", "strict_load_g"),
    "val": ("save_img", "metrics", "tile_size", "tile_overlap"),
}
"""Sections of test files, and their keys where they have fewer than those of runs."""


class Draft:
    """What has been written of an option file, and what became of each key of theirs.

    Attributes:
        theirs: values of their file.
        project: whose it is.
        known: components that are registered here.
        is_test: it measures a trained network, and does not train.
        tree: what has been written.
        answers: in the order in which they were given.

    Args:
        theirs: values of their file.
        project: whose it is.
        known: components that are registered here.
    """

    def __init__(self, theirs: dict[str, Any], project: Project, known: Known) -> None:
        self.theirs = theirs
        self.project = project
        self.known = known
        self.is_test = "train" not in theirs
        self.tree: dict[str, Any] = {}
        self.answers: list[Answer] = []
        self._leaves = list(leaves(theirs))
        self._answered: set[KeyPath] = set()

    def get(self, *path: str | int, default: Any = None) -> Any:
        """Return a value of theirs; ``default`` where there is none, or it is null."""
        value = value_in(self.theirs, path)
        return default if value is None else value

    def section(self, *path: str | int) -> dict[str, Any]:
        """Return a section of theirs; an empty one where there is none."""
        value = self.get(*path)
        return value if isinstance(value, dict) else {}

    def unanswered(self, *prefix: str | int) -> list[KeyPath]:
        """Return the keys of theirs at or below ``prefix`` that have no answer yet, in file order."""
        return [path for path in self._leaves if path[: len(prefix)] == prefix and not self.is_answered(path)]

    def is_answered(self, path: KeyPath) -> bool:
        """Return whether a key of theirs, or a section that holds it, has an answer."""
        return any(path[:length] in self._answered for length in range(1, len(path) + 1))

    def written(self, *path: str | int) -> Any:
        """Return a value that has been written; ``None`` where there is none."""
        return value_in(self.tree, path)

    def keep(self, path: KeyPath) -> None:
        """Carry a key as it is."""
        self._put(Kind.CARRIED, (path,), path, self.get(*path), self.get(*path), "")

    def write(self, to: KeyPath, value: Any, of: Sequence[KeyPath], why: str = "") -> None:
        """Write a value that stands for keys of theirs under other names, or with other values."""
        old = self.get(*of[0]) if of else None
        is_same = list(of) == [to] and old == value and type(old) is type(value)
        self._put(Kind.CARRIED if is_same else Kind.MAPPED, tuple(of), to, old, value, "" if is_same else why)

    def need_not(self, path: KeyPath, to: KeyPath, why: str) -> None:
        """Answer a key that need not be written, since the default here is the same."""
        self._answer(Answer(Kind.MAPPED, (path,), to, self.get(*path), None, why))

    def leave(self, path: KeyPath, why: str, near: str = "") -> None:
        """Leave out a key or a section, with the reason and the nearest thing here."""
        self._answer(Answer(Kind.LEFT_OUT, (path,), None, self.get(*path), None, why, near))

    def miss(self, path: KeyPath, to: KeyPath, why: str, near: str) -> None:
        """Write a component that is not here as they wrote it: it has to be changed before the file can be used."""
        self._put(Kind.MISSING, (path,), to, self.get(*path), self.get(*path), why, near)

    def unknown(self, path: KeyPath, why: str, near: str) -> None:
        """Name a key that is in no table."""
        self._answer(Answer(Kind.UNKNOWN, (path,), None, self.get(*path), None, why, near))

    def unknown_argument(self, path: KeyPath, name: str, near: str) -> None:
        """Name an argument that no component of that name has."""
        self.unknown(path, f"{name} takes no such argument, here or in {self.project}", near)

    def add(self, to: KeyPath, value: Any, why: str) -> None:
        """Write out a default of theirs that differs from the one here."""
        if not self._is_refused(to):
            self._set(to, value)
            self._answer(Answer(Kind.ADDED, (), to, None, value, why))

    def remove(self, path: KeyPath, why: str, near: str = "") -> None:
        """Take back what has been written at or below a key, and leave out the keys that it came from."""
        for number, answer in enumerate(self.answers):
            if answer.target is not None and answer.target[: len(path)] == path:
                kind = Kind.LEFT_OUT if answer.source else Kind.ADDED
                self.answers[number] = Answer(kind, answer.source, None, answer.old, None, why, near)
        self.answers = [
            answer
            for answer in self.answers
            if answer.source or answer.target is not None or answer.kind is Kind.DIFFERS
        ]
        section = self.written(*path[:-1]) if len(path) > 1 else self.tree
        if isinstance(section, dict):
            section.pop(str(path[-1]), None)

    def take_back(self, path: KeyPath) -> None:
        """Take back the answer to a key of theirs, and that a default was written there: another one follows."""
        self.answers = [one for one in self.answers if path not in one.source and (one.source or one.target != path)]

    def differ(self, why: str) -> None:
        """Say what differs, whatever the file says."""
        self.answers.append(Answer(Kind.DIFFERS, why=why))

    def _put(
        self, kind: Kind, of: tuple[KeyPath, ...], to: KeyPath, old: Any, new: Any, why: str, near: str = ""
    ) -> None:
        if self._is_refused(to):
            answer = Answer(Kind.LEFT_OUT, of, None, old, None, "a test does not train, and its file has no such key")
            self._answer(answer)
            return
        self._set(to, new)
        self._answer(Answer(kind, of, to, old, new, why, near))

    def _is_refused(self, to: KeyPath) -> bool:
        if not self.is_test:
            return False
        section, keys = str(to[0]), TEST_KEYS.get(str(to[0]))
        return keys is None or (section in ("path", "val") and len(to) > 1 and to[1] not in keys)

    def _answer(self, answer: Answer) -> None:
        self.answers.append(answer)
        self._answered.update(answer.source)

    def _set(self, to: KeyPath, value: Any) -> None:
        place: Any = self.tree
        for key, following in zip(to, (*to[1:], ""), strict=True):
            is_last = following == ""
            if isinstance(key, int):
                while len(place) <= key:
                    place.append({})
                if is_last:
                    place[key] = value
                place = place[key]
            elif is_last:
                place[key] = value
            else:
                place = place.setdefault(key, [] if isinstance(following, int) else {})


def value_in(tree: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path of sections and lists; ``None`` where there is none."""
    for key in path:
        if isinstance(tree, dict):
            tree = tree.get(key)
        elif isinstance(tree, list) and isinstance(key, int) and key < len(tree):
            tree = tree[key]
        else:
            return None
    return tree


def leaves(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the paths of all values that are no sections, in file order; a list of values is one value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    elif path:
        yield path
