"""What runs have in common, and in words what is left out of a comparison because only one of them has it."""

from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key")


class InCommon(Generic[Key]):
    """Tells what at least two runs have from what only one has. Runs that have nothing yet do not count.

    Args:
        found: what each run has.

    Attributes:
        shared: what is compared; all of it where a single run has anything.
        alone: what only one run has, by the number of the run.
    """

    def __init__(self, found: Sequence[Collection[Key]]) -> None:
        times = [key for keys in found for key in dict.fromkeys(keys)]
        having = sum(bool(keys) for keys in found)
        self.shared = [key for key in dict.fromkeys(times) if times.count(key) > 1 or having == 1]
        alone = [[key for key in keys if key not in self.shared] for keys in found]
        self.alone = {number: keys for number, keys in enumerate(alone) if keys}


def left_out_words(noun: str, alone: dict[int, list[str]], called: Sequence[str]) -> str:
    """Return a sentence on what only one run has; empty where there is nothing.

    Args:
        noun: what it is, in the plural.
        alone: names by the number of the run.
        called: the names of the runs.
    """
    parts = [f"{', '.join(names)} ({called[number]})" for number, names in alone.items()]
    return f"Left out, because only one run has them, are the {noun} {', '.join(parts)}." if parts else ""
