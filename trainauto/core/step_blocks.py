"""Logs of steps read in blocks: of lines that differ in a few numbers alone, only these are read, as columns.

A log of a million steps has the same keys, plan and sizes in nearly all of its lines. What is left of a line without
its digits is its form. Lines of one form are cut into numbers by two passes that C makes over all of them at once, and
those of each place in the line are a slice. Whatever differs in more than :data:`VARYING` is read line by line.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import add
from typing import Any

from trainauto.core.json_text import LARGEST_COUNT, from_json, object_of
from trainauto.core.record_json import step_from_dict
from trainauto.core.records import StepRecord

VARYING = frozenset(("step", "first_sample", "losses", "lr", "grad_norm", "data_s", "step_s", "peak", "time"))
"""Keys whose numbers differ within a block; of ``peak`` all but its limit."""

_FEWEST = 8
"""Lines of a block: fewer are not worth it."""

_EXPONENT = b"\x01"
"""Stands for the e of exponents, which keys hold, too; no JSON has this character."""
_OF_NUMBERS = b"0123456789.+-" + _EXPONENT
_TO_SPACES = bytes(byte if byte in _OF_NUMBERS else 32 for byte in range(256))
_TOKEN = re.compile(rb"[0-9.+\x01-]+")
_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)')

Key = tuple[str, ...]


@dataclass(frozen=True)
class _Form:
    """What lines have in common that differ in their digits alone.

    Attributes:
        tokens: pieces of digits in a line, those within keys among them.
        places: which of them the numbers are that may differ, by their keys.
        others: pieces that may not differ within a block.
    """

    tokens: int
    places: dict[Key, int]
    others: tuple[int, ...]

    @classmethod
    def of(cls, line: bytes) -> "_Form | None":
        """Return the form of a line; ``None`` where it holds no step, or text in the place of a number."""
        tokens = [match.span() for match in _TOKEN.finditer(_prepared(line))]
        spans = [match.span(1) for match in _NUMBER.finditer(line) if match[1] is not None]
        numbered, end = b"", 0
        for number, (begin, after) in enumerate(spans):
            numbered, end = numbered + line[end:begin] + str(number).encode(), after
        entry = from_json(numbered + line[end:])
        places = {}
        for keys, number in _leaves({key: entry[key] for key in VARYING & entry.keys()}):
            if number is None or keys == ("peak", "limit"):
                continue
            if not isinstance(number, int) or spans[number] not in tokens:  # as 1e16: an exponent without a sign
                return None
            places[keys] = tokens.index(spans[number])
        if not {("step",), ("data_s",), ("step_s",)} <= places.keys():
            return None
        return cls(len(tokens), places, tuple(sorted(set(range(len(tokens))) - set(places.values()))))


def _prepared(lines: bytes) -> bytes:
    return lines.replace(b"e-", _EXPONENT + b"-").replace(b"e+", _EXPONENT + b"+")


def _leaves(value: Any, keys: Key = ()) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*keys, key))
    else:
        yield keys, value


@dataclass(frozen=True)
class StepBlock:
    """Steps one after another that went alike: the same plan, samples and terms, and memory never ran out.

    Attributes:
        first: the first of them; the others have other numbers where it has those of :data:`VARYING`.
        lines: of all of them.
    """

    first: StepRecord
    lines: Sequence[bytes]
    _form: _Form
    _tokens: Sequence[bytes]
    _read: dict[tuple[Key, type], list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def last_step(self) -> int:
        """The number of the last one."""
        return self.first.step + len(self) - 1

    @property
    def seconds(self) -> list[float]:
        """What each took, waits for data included."""
        return list(map(add, self.column("data_s"), self.column("step_s")))

    @property
    def whole_bytes(self) -> Sequence[int]:
        """Peaks of their plan; none where these steps were no whole ones, or memory was not read."""
        return self.counts("peak", "allocated") if self.first.peak is not None and self.first.is_whole else ()

    def column(self, *keys: str) -> list[float]:
        """Return the numbers under these keys, of all steps in their order; none where there are none.

        Raises:
            ValueError: one is no number.
        """
        return self._numbers(keys, float)

    def counts(self, *keys: str) -> list[int]:
        """Return the same of whole numbers.

        Raises:
            ValueError: one is none.
        """
        return self._numbers(keys, int)

    def _numbers(self, keys: Key, kind: type) -> list[Any]:
        if keys not in self._form.places:
            return []
        if (keys, kind) not in self._read:
            pieces = self._tokens[self._form.places[keys] :: self._form.tokens]
            if kind is float:
                pieces = b" ".join(pieces).replace(_EXPONENT, b"e").split()
            self._read[keys, kind] = list(map(kind, pieces))
        return self._read[keys, kind]

    def names(self, key: str) -> list[str]:
        """Return what there are numbers of below a key, in the order of the lines."""
        return [keys[1] for keys in self._form.places if keys[0] == key and len(keys) == 2]

    def records(self, last: int | None = None) -> Iterator[StepRecord]:
        """Yield the steps as records, or only so many of the last ones."""
        for line in self.lines if last is None else self.lines[max(0, len(self) - last) :]:
            yield step_from_dict(object_of(line) or {})

    def divided(self, step: int) -> tuple["StepBlock", "StepBlock"]:
        """Return the steps before one that is within, and those from there on."""
        before = step - self.first.step
        at = before * self._form.tokens
        first = step_from_dict(object_of(self.lines[before]) or {})
        return (
            StepBlock(self.first, self.lines[:before], self._form, self._tokens[:at]),
            StepBlock(first, self.lines[before:], self._form, self._tokens[at:]),
        )


def blocks_in(chunks: Iterable[Sequence[bytes]]) -> Iterator[StepBlock | dict[str, Any]]:
    """Yield the steps of a log, blocks of those that went alike and the lines of others; what is no object is left out.

    Args:
        chunks: lines, some at a time.
    """
    forms: dict[bytes, _Form | None] = {}
    for lines in chunks:
        shapes = _prepared(b"".join(lines)).translate(None, _OF_NUMBERS).splitlines()
        if len(shapes) != len(lines):  # something ends lines that is no end of a line
            yield from _one_by_one(lines)
            continue
        place = 0
        for shape, same in groupby(shapes):
            alike = lines[place : place + sum(1 for _ in same)]
            place += len(alike)
            if len(alike) < _FEWEST:
                yield from _one_by_one(alike)
                continue
            if shape not in forms:
                forms[shape] = _form_of(alike[0])
            yield from _in_blocks(alike, forms[shape])


def _one_by_one(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    return (entry for entry in map(object_of, lines) if entry is not None)


def _form_of(line: bytes) -> _Form | None:
    try:
        return _Form.of(line)
    except (ValueError, AttributeError, TypeError):
        return None


def _in_blocks(lines: Sequence[bytes], form: _Form | None) -> Iterator[StepBlock | dict[str, Any]]:
    """Yield lines of one form."""
    tokens = _prepared(b"".join(lines)).translate(_TO_SPACES).split()
    if form is None or len(tokens) != form.tokens * len(lines):
        yield from _one_by_one(lines)
        return
    for begin, end in _runs(tokens, form):
        block = _block(lines[begin:end], form, tokens[begin * form.tokens : end * form.tokens])
        if block is None:
            yield from _one_by_one(lines[begin:end])
        else:
            yield block


def _runs(tokens: Sequence[bytes], form: _Form) -> Iterator[tuple[int, int]]:
    """Yield where lines begin and end that differ in no other numbers and whose steps follow each other."""
    steps = tokens[form.places["step",] :: form.tokens]
    ends = {len(steps)}
    if all(map(bytes.isdigit, steps)):  # other lines are refused one by one
        numbers = list(map(int, steps))
        ends |= {at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1}
    for place in form.others:
        column = tokens[place :: form.tokens]
        if column.count(column[0]) < len(column):
            ends |= {number for number in range(1, len(column)) if column[number] != column[number - 1]}
    begin = 0
    for end in sorted(ends):
        yield begin, end
        begin = end


def _block(lines: Sequence[bytes], form: _Form, tokens: Sequence[bytes]) -> StepBlock | None:
    """Return lines as a block; ``None`` where a record of one would be refused, or says that something went wrong."""
    entry = object_of(lines[0])
    if len(lines) < _FEWEST or entry is None:
        return None
    try:
        block = StepBlock(step_from_dict(entry), lines, form, tokens)
        is_plain = not (block.first.ooms or block.first.noise or block.first.task_losses or block.first.compile_seconds)
        steps = block.counts("step")
        return (
            block if is_plain and steps == list(range(steps[0], steps[0] + len(lines))) and _is_sound(block) else None
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


_LONGEST_S = 1e12


def _is_sound(block: StepBlock) -> bool:
    """Say whether each line would become a record."""
    counts = [block.counts(*keys) for keys in block._form.places if keys[0] in ("first_sample", "peak")]
    seconds = [block.column("data_s"), block.column("step_s")]
    floats = [block.column(*keys) for keys in block._form.places if keys[0] in ("losses", "lr", "grad_norm")]
    is_finite = all(sum(column) - sum(column) == 0 for column in floats)
    return (
        is_finite
        and all(min(column) >= 0 and max(column) <= LARGEST_COUNT for column in counts)
        and all(min(column) > -_LONGEST_S and max(column) < _LONGEST_S for column in seconds)
    )
