"""Every error that trainauto raises on purpose, and how it reads on a terminal.

```
TrainautoError           exit code 1: the run failed
├── InputError           exit code 2: what the person gave cannot be used; carries one or more Problems
├── CheckpointError      exit code 1: a checkpoint is missing a part or cannot be read
│   └── NetworkMismatchError     exit code 2: it belongs to another network
└── NonFiniteError       exit code 1: a loss or a gradient became NaN or Inf
```
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import IntEnum


class Saving(IntEnum):
    """Who writes a checkpoint before an error ends the run; the later ones include the earlier.

    ``NOBODY``: the last checkpoint is intact. ``ALONE``: a process on its own; of several ranks the others do not know
    of the error. ``TOGETHER``: every rank, for all of them leave at this step.
    """

    NOBODY = 0
    ALONE = 1
    TOGETHER = 2


class TrainautoError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""

    exit_code = 1
    saving = Saving.NOBODY


@dataclass(frozen=True)
class Place:
    """Where in a text a problem lies.

    Attributes:
        file: name of the file (or of the argument) as the person knows it.
        line: 1-based line; 0 when the problem belongs to the file as a whole.
        column: 1-based column.
        text: that line, without its newline.
    """

    file: str
    line: int = 0
    column: int = 0
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: what, where, and what to do about it.

    Attributes:
        message: the fact.
        place: where it stands.
        advice: what to do.
        argument: the argument at fault, where a component knows it but not its place, dotted where it is nested;
            the builder finds the place.
        may_be_of_plugin: a plugin may bring what is not known, if the file names one.
    """

    message: str
    place: Place | None = None
    advice: str = ""
    argument: str = ""
    may_be_of_plugin: bool = False

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.message}" if self.place else self.message]
        if self.place and self.place.line:
            # A very long line is cut around the column, so that the block stays readable at 80 columns.
            start = max(0, self.place.column - 50) if len(self.place.text) > 100 else 0
            shown = self.place.text[start : start + 100].rstrip()
            lines.append(f"    {shown}")
            lines.append("    " + " " * max(0, self.place.column - 1 - start) + "^")
        if self.advice:
            lines.append(f"  {self.advice}")
        return "\n".join(lines)


class InputError(TrainautoError):
    """Options, data or arguments that cannot be used. Nothing has been changed when it is raised.

    Attributes:
        is_of_every_rank: every rank on this machine raises the same, so that one of them has to print it.
    """

    exit_code = 2
    is_of_every_rank = False

    def __init__(self, problems: Problem | str | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@contextmanager
def within_argument(name: str) -> Iterator[None]:
    """Say of problems raised inside that the argument at fault, where they name one, lies inside of ``name``."""
    try:
        yield
    except InputError as error:
        named = [replace(p, argument=f"{name}.{p.argument}" if p.argument else name) for p in error.problems]
        raise InputError(named) from error


@contextmanager
def collected(problems: list[Problem]) -> Iterator[None]:
    """Append the problems of an InputError raised inside to a list, and go on."""
    try:
        yield
    except InputError as error:
        problems += error.problems


class CheckpointError(TrainautoError):
    """A checkpoint cannot be read, or does not fit what is to be restored from it."""


class NetworkMismatchError(CheckpointError):
    """A checkpoint is of another network than the options describe: a matter of input, exit code 2."""

    exit_code = 2


class NonFiniteError(TrainautoError):
    """A loss term or a gradient is NaN or Inf; the message names the term and the samples of the batch."""


def saving_before(error: BaseException) -> Saving:
    """Return who is to save before an error ends the run."""
    saving: Saving = getattr(error, "saving", Saving.NOBODY)
    return saving


def have_saved(error: Exception, saving: Saving) -> None:
    """Say who is to save before an error of any kind ends the run."""
    vars(error)["saving"] = saving


def nearest(word: str, words: Iterable[str], otherwise: str = "Nothing is known here.") -> str:
    """Return advice naming the known word nearest to ``word``, or all of them if none is near; ``otherwise`` if empty.

    Compared without regard to case, hyphens and underscores, since these are what people mistype.
    """

    def plain(text: str) -> str:
        return text.lower().replace("_", "").replace("-", "").replace(" ", "")

    names = sorted(set(words))
    by_plain: dict[str, str] = {plain(name): name for name in names}
    matches = get_close_matches(plain(word), list(by_plain), n=1, cutoff=0.6)
    if matches:
        return f"Did you mean '{by_plain[matches[0]]}'?"
    if not names:
        return otherwise
    return "Known: " + ", ".join(names) + "."
