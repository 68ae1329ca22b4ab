"""Knobs that memory follows, and the plan that sets them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import ceil

from trainauto.core.json_text import count_of

BATCH_SIZE = "batch_size"
TOKENS = "tokens"
"""Name of the axis of padded tokens of a whole batch, where nothing counts samples."""


@dataclass(frozen=True)
class SizeRequirements:
    """What a network asks of the height and width of its input, in pixels of the low-quality image.

    Attributes:
        minimum: smallest side it accepts.
        multiple: sides must be multiples of this (window attention); 1 where any side will do.
    """

    minimum: int = 1
    multiple: int = 1


@dataclass(frozen=True)
class Axis:
    """A knob that memory follows, with its bounds.

    Attributes:
        name: key in plans and option files, e.g. ``lq_size``.
        unit: what one step of it is, e.g. ``px`` or ``samples``.
        minimum: smallest admissible value.
        maximum: largest admissible value.
        multiple: admissible values are multiples of this.
        power: memory follows ``value ** power``: 2 for a side of an image, 1 for tokens and for samples.
        capped_by: what makes ``maximum`` the largest, where it is worth saying: ``the smallest image``.
    """

    name: str
    unit: str
    minimum: int
    maximum: int
    multiple: int = 1
    capped_by: str = field(default="", compare=False)
    power: int = 1

    @property
    def is_count(self) -> bool:
        """Whether it counts samples; any other axis is the size of one (or of a batch, where nothing counts)."""
        return self.name == BATCH_SIZE

    @property
    def values(self) -> range:
        """All admissible values."""
        smallest = self.clamp(self.minimum)
        return range(smallest, max(smallest, self.maximum) + 1, self.multiple)

    @property
    def at_bound(self) -> str:
        """Say that a value is at its maximum, and why it is the maximum."""
        bound, why = self.maximum, self.capped_by
        if self.unit == "tokens" and self.clamp(bound) != bound:  # of rows, a part is no use
            bound, why = self.clamp(bound), why or f"{bound} in whole rows of {self.multiple}"
        return f"{self.name} is at its bound {bound}{f' ({why})' if why else ''}"

    def __post_init__(self) -> None:
        if not (self.multiple >= 1 and 1 <= self.minimum <= self.maximum):
            raise ValueError(f"axis {self.name}: need 1 <= minimum <= maximum and multiple >= 1, got {self}")
        if self.power < 1:
            raise ValueError(f"axis {self.name}: power must be at least 1, got {self.power}")

    def clamp(self, value: int) -> int:
        """Return the admissible value nearest below ``value``, or the smallest admissible one."""
        smallest = ceil(self.minimum / self.multiple) * self.multiple
        largest = self.maximum // self.multiple * self.multiple
        return max(smallest, min(largest, value // self.multiple * self.multiple))

    def admits(self, value: int) -> bool:
        """Say whether ``value`` lies within the bounds and on the multiple."""
        return self.minimum <= value <= self.maximum and value % self.multiple == 0


@dataclass(frozen=True)
class Plan:
    """What the loader draws next: a value on each axis, plus the number of micro-batches.

    Memory follows ``forward_batch_size``, not ``batch_size``: a step runs its samples in ``micro_batches`` pieces.
    At most one axis counts samples (``batch_size``), and at most one is a size; either may be missing.

    Attributes:
        values: (axis name, value) pairs, sorted by name; build it with :meth:`of`.
        micro_batches: pieces in which one optimizer step runs its samples.
    """

    values: tuple[tuple[str, int], ...]
    micro_batches: int = 1

    @classmethod
    def of(cls, *, micro_batches: int = 1, **values: int) -> "Plan":
        """Build a plan from axis values, e.g. ``Plan.of(batch_size=4, lq_size=48)``.

        Raises:
            ValueError: a value is below 1, or there are two sizes.
        """
        if len(sizes := sorted(set(values) - {BATCH_SIZE})) > 1:
            raise ValueError(f"a plan has one size, got {sizes}")
        bad = {name: value for name, value in {**values, "micro_batches": micro_batches}.items() if value < 1}
        if bad:
            raise ValueError(f"plan values must be at least 1, got {bad}")
        return cls(tuple(sorted(values.items())), micro_batches)

    def __getitem__(self, axis: str) -> int:
        for name, value in self.values:
            if name == axis:
                return value
        raise KeyError(axis)

    def __contains__(self, axis: str) -> bool:
        return axis in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.values)

    @cached_property
    def batch_size(self) -> int:
        """Samples per rank per optimizer step; 1 where no axis counts them."""
        return next((value for name, value in self.values if name == BATCH_SIZE), 1)

    @cached_property
    def size(self) -> int:
        """Value of the one axis that is no count; 1 where there is none."""
        return next((value for name, value in self.values if name != BATCH_SIZE), 1)

    @cached_property
    def has_size(self) -> bool:
        """Whether one of its axes is a size."""
        return any(name != BATCH_SIZE for name, _ in self.values)

    def with_batch_size(self, samples: int) -> "Plan":
        """Return this plan with another number of samples; itself where no axis counts them."""
        return self.changed(batch_size=samples) if BATCH_SIZE in self else self

    def with_size(self, size: int) -> "Plan":
        """Return this plan with another size; itself where no axis is one."""
        return self.changed(**{name: size for name, _ in self.values if name != BATCH_SIZE})

    @property
    def forward_batch_size(self) -> int:
        """Samples in the largest single forward pass."""
        return ceil(self.batch_size / self.micro_batches)

    @property
    def forward_size(self) -> int:
        """Size in the largest single forward pass: where nothing counts samples, a size is divided among the passes."""
        return self.size if BATCH_SIZE in self else ceil(self.size / self.micro_batches)

    def changed(self, *, micro_batches: int | None = None, **values: int) -> "Plan":
        """Return this plan with some values replaced."""
        pieces = self.micro_batches if micro_batches is None else micro_batches
        return Plan.of(micro_batches=pieces, **{**dict(self.values), **values})

    def capped_by(self, other: "Plan") -> "Plan":
        """Return the plan that is within both: the smaller value on every axis, the more micro-batches.

        Axes that only ``self`` has keep their value.
        """
        lower = {name: min(value, other[name]) if name in other else value for name, value in self.values}
        return Plan.of(micro_batches=max(self.micro_batches, other.micro_batches), **lower)

    def to_dict(self) -> dict[str, int]:
        """Return the plan as plain integers, for checkpoints and logs."""
        return {**dict(self.values), "micro_batches": self.micro_batches}

    @classmethod
    def from_dict(cls, values: Mapping[str, int]) -> "Plan":
        """Rebuild a plan from :meth:`to_dict`; the same one where it has the same values, as most steps of a log."""
        return _rebuilt(tuple(values.items()))

    def with_micro_batches(self, micro_batches: int) -> "Plan":
        """Return this plan run in another number of pieces."""
        return replace(self, micro_batches=micro_batches)

    @property
    def pieces(self) -> int:
        """Micro-batches that hold a sample: a batch that has shrunk keeps its number, for when it grows again."""
        return min(self.micro_batches, self.batch_size) if BATCH_SIZE in self else self.micro_batches

    def __str__(self) -> str:
        words = [f"{name} {value}" for name, value in self.values]
        if self.pieces > 1:
            words.append(f"in {self.pieces} micro-batches")
        return ", ".join(words)


@lru_cache(maxsize=256)
def _rebuilt(values: tuple[tuple[str, int], ...]) -> Plan:
    return Plan.of(**{name: count_of(value) for name, value in values})


@dataclass(frozen=True)
class BatchShape:
    """What one batch really holds; cost models see shapes, not plans.

    Attributes:
        samples: number of samples.
        extent: size of a sample on the axis that memory follows: side of a crop, tokens of a padded row.
        tokens: padded tokens in the whole batch; 0 for images.
        images: images in the whole batch; equals ``samples`` for plain super-resolution.
    """

    samples: int
    extent: int
    tokens: int = 0
    images: int = 0


def count_axis(axes: Iterable[Axis]) -> Axis | None:
    """Return the axis that counts samples, if there is one."""
    return next((axis for axis in axes if axis.is_count), None)


def size_axis(axes: Iterable[Axis]) -> Axis | None:
    """Return the axis that is a size, if there is one."""
    return next((axis for axis in axes if not axis.is_count), None)


def plan_of(axes: Iterable[Axis], batch_size: int, size: int, micro_batches: int = 1) -> Plan:
    """Return a plan on these axes; what none of them stands for is left out."""
    return Plan.of(micro_batches=micro_batches, **{axis.name: batch_size if axis.is_count else size for axis in axes})


def work(plan: Plan, axes: Iterable[Axis]) -> int:
    """Return what activations grow with in one forward pass: samples times size, to the power of its axis."""
    axis = size_axis(axes)
    units: int = plan.forward_size ** (axis.power if axis else 1)
    return plan.forward_batch_size * units


def shape_of(plan: Plan) -> BatchShape:
    """Return what memory sees of a plan: its largest forward pass."""
    return BatchShape(samples=plan.forward_batch_size, extent=plan.forward_size, images=plan.forward_batch_size)
