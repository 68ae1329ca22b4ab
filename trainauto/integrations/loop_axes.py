"""What may grow in a loop of one's own, and between which bounds."""

from dataclasses import dataclass, fields
from operator import index
from typing import Any

from trainauto.core.errors import InputError
from trainauto.core.plan import BATCH_SIZE, TOKENS, Axis, Plan

SIZE = "size"


@dataclass(frozen=True)
class Range:
    """What a value begins with, and how far it may go.

    Attributes:
        start: value of the first batch, where memory is not known before it.
        maximum: largest value.
        minimum: smallest value, under pressure only; 1, or the multiple.
        multiple: admissible values are multiples of it.
        power: memory follows the value to this power: 2 for the side of an image.

    Raises:
        InputError: a value is no whole number, or below 1.
    """

    start: int
    maximum: int
    minimum: int = 1
    multiple: int = 1
    power: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = _whole(f"{field.name} of a Range", getattr(self, field.name))
            object.__setattr__(self, field.name, value)  # numpy's numbers are none that logs can hold

    def axis(self, name: str, unit: str) -> Axis:
        """Return it as an axis of plans.

        Raises:
            InputError: the bounds leave no value, or the start is none of them.
        """
        minimum = max(self.minimum, self.multiple)
        if minimum > self.maximum:
            raise InputError(f"{name} goes from {minimum} to {self.maximum}: need 1 <= minimum <= maximum")
        axis = Axis(name, unit, minimum, self.maximum, self.multiple, power=self.power)
        if not axis.admits(self.start):
            raise InputError(
                f"{name} starts with {self.start}, which is no multiple of {self.multiple} between {axis.minimum} and "
                f"{axis.maximum}"
            )
        return axis


Values = Range | int
"""A range, or a value that stays."""


@dataclass(frozen=True)
class Growth:
    """The axes of a loop, and its first plan.

    Attributes:
        axes: in the order in which they grow.
        plan: to start with.
        longest: tokens of the longest sample, where the budget is one of tokens.
    """

    axes: tuple[Axis, ...]
    plan: Plan
    longest: int | None = None

    @classmethod
    def of(cls, batch_size: Values | None, size: Values | None, tokens: Values | None, longest: int | None) -> "Growth":
        """Put together what a person asks for.

        Raises:
            InputError: there is neither a batch nor a budget of tokens, or both, or tokens without lengths.
        """
        if (batch_size is None) == (tokens is None):
            raise InputError("give either batch_size or tokens: how many samples a batch holds, or how many tokens")
        if tokens is not None:
            if size is not None:
                raise InputError("samples of a budget of tokens are as long as they are: leave size out")
            if longest is None:
                raise InputError("tokens needs lengths: how many tokens each sample has")
            return cls._of_tokens(_range(tokens, TOKENS), int(longest))
        count = _range(batch_size if batch_size is not None else 1, "batch_size")
        axes = [count.axis(BATCH_SIZE, "samples")]
        values = {BATCH_SIZE: count.start}
        if size is not None:
            axes.insert(0, _range(size, SIZE).axis(SIZE, "px"))
            values[SIZE] = _range(size, SIZE).start
        return cls(tuple(axes), Plan.of(**values))

    @classmethod
    def _of_tokens(cls, tokens: Range, longest: int) -> "Growth":
        """Count budgets in rows of the longest sample: each such step is the largest that its plan allows."""
        rows = [value // longest for value in (tokens.start, tokens.maximum)]
        if rows[0] < 1:
            raise InputError(f"{tokens.start} tokens hold no sample of {longest}: cut samples, or allow more tokens")
        least = max(1, tokens.minimum // longest)
        axis = Axis(TOKENS, "tokens", least * longest, rows[1] * longest, longest)
        return cls((axis,), Plan.of(**{TOKENS: rows[0] * longest}), longest)


def _range(values: Values, name: str) -> Range:
    if isinstance(values, Range):
        return values
    value = _whole(name, values)
    return Range(value, value, value)


def _whole(name: str, value: Any) -> int:
    try:
        number = index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}: give a whole number, or a Range such as Range(4, 64)") from None
    if number < 1:
        raise InputError(f"{name} is {number}: it must be at least 1")
    return number
