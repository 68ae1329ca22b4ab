"""What runs have in common, and in words what is left out of a comparison because only one of them has it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key")


class InCommon(Generic[Key]):
    """Tells what at least two runs have from what only one has. Runs that have nothing yet do not count.

    Args:
        found: what each run has.

    Attributes:
        shared: what is compared; all of it where a single run has anything.
        alone: what only one run has, by the number of the run.
        is_all: whether all have the same.
    """

    def __init__(self, found: Sequence[Collection[Key]]) -> None:
        times = [key for keys in found for key in dict.fromkeys(keys)]
        having = sum(bool(keys) for keys in found)
        self.is_all = len({frozenset(keys) for keys in found if keys}) <= 1
        self.shared = [key for key in dict.fromkeys(times) if times.count(key) > 1 or having == 1]
        alone = [[key for key in keys if key not in self.shared] for keys in found]
        self.alone = {number: keys for number, keys in enumerate(alone) if keys}


def alone_words(noun: str, alone: Mapping[int, Sequence[str]], called: Sequence[str]) -> Iterator[str]:
    """Yield what only one run has, each with its noun and the name of the run.

    Args:
        noun: what it is.
        alone: its names by the number of the run.
        called: the names of the runs.
    """
    for number, names in alone.items():
        yield from (f"{noun} {name} ({called[number]})" for name in names)
