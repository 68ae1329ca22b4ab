"""The files that a set of samples is made of, by name and size, and how two such lists differ."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BETWEEN_FILES = "\0"
"""What stands between the names of the files of one sample."""

SHOWN_NAMES = 3


@dataclass(frozen=True)
class SampleFiles:
    """The files of a set, in the order of its samples.

    Attributes:
        names: of each sample: the path below its root, with the extension; of a pair both, with
            :data:`BETWEEN_FILES` between them.
        size_bytes: of each sample, all its files together.
    """

    names: tuple[str, ...]
    size_bytes: tuple[int, ...]

    @property
    def digest(self) -> str:
        """What tells one order of names from another: positions in the stream of samples belong to it."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        return {"names": list(self.names), "bytes": list(self.size_bytes)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "SampleFiles":
        """Return what :meth:`to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        names, sizes = tuple(map(str, content["names"])), tuple(map(int, content["bytes"]))
        if len(names) != len(sizes):
            raise ValueError(f"{len(names)} names and {len(sizes)} sizes")
        return cls(names, sizes)


@dataclass(frozen=True)
class Kept:
    """Which files a resumed run has.

    Attributes:
        files: those it began with; ``None`` where it began under a version that kept no list: what that one read.
    """

    files: SampleFiles | None


@dataclass(frozen=True)
class SetChanges:
    """How the files of a set differ from an earlier list.

    Attributes:
        removed: names that are gone.
        renamed: names that are gone, each with the new one that alone has its size.
        added: names that are new.
        resized: names whose files have another size.
        newly_readable: names that the version passed over which the run began under.
    """

    removed: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    newly_readable: tuple[str, ...] = ()

    @classmethod
    def between(cls, before: SampleFiles, now: SampleFiles) -> "SetChanges":
        """Compare two lists; the order of names does not matter."""
        if before == now:
            return cls()
        then, here = (dict(zip(files.names, files.size_bytes, strict=True)) for files in (before, now))
        gone = {name: size for name, size in then.items() if name not in here}
        new = {name: size for name, size in here.items() if name not in then}
        gone_counts, new_counts = Counter(gone.values()), Counter(new.values())
        by_size = {size: name for name, size in new.items() if new_counts[size] == gone_counts[size] == 1}
        renamed = {name: by_size[size] for name, size in gone.items() if size in by_size}
        return cls(
            tuple(name for name in gone if name not in renamed),
            tuple(renamed.items()),
            tuple(name for name in new if name not in renamed.values()),
            tuple(name for name, size in then.items() if here.get(name, size) != size),
        )

    @property
    def has_gone(self) -> bool:
        """Whether a name of the earlier list is not there any more."""
        return bool(self.removed or self.renamed)

    def words(self) -> list[str]:
        """Return a text for each kind of change: how many, and the first names."""
        return [
            f"{len(names)} {kind}: {_first(names)}"
            for kind, names in (
                ("removed", [shown(name) for name in self.removed]),
                ("renamed", [f"{shown(old)} is now {shown(new)}" for old, new in self.renamed]),
                ("added", [shown(name) for name in self.added]),
                ("of another size", [shown(name) for name in self.resized]),
                ("newly readable", [shown(name) for name in self.newly_readable]),
            )
            if names
        ]


def shown(name: str) -> str:
    """Return the name of a sample for people: of a pair, the first file's."""
    return name.partition(BETWEEN_FILES)[0]


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more
