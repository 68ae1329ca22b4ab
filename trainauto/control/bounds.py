"""How far a controller may go: the bounds of its options, met with what a run admits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import Axis, Plan

ANY = 2**31


@dataclass
class Bounds:
    """Smallest and largest values, by axis.

    Attributes:
        limits: of each axis, smallest and largest value; an axis without any is not bounded.
        known_axes: what a run has that does not say which axes it has, in the order in which they grow.
        ceilings: values that growth is to end at, where something was asked for.
    """

    limits: Mapping[str, tuple[int, int]]
    known_axes: tuple[Axis, ...] = ()
    ceilings: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (low, high) in self.limits.items():
            if low < 1:
                raise ValueError(f"min_{name} must be at least 1, got {low}")
            if low > high:
                raise ValueError(f"max_{name} {high} is below min_{name} {low}; were they meant the other way round?")

    def at_most(self, axis: str, largest: int | None) -> "Bounds":
        """Return bounds of which one axis goes no further; a minimum beyond that is lowered with it."""
        low, high = self.of(axis)
        most = min(high, largest or high)
        return replace(self, limits={**self.limits, axis: (min(low, most), most)})

    def of(self, axis: str) -> tuple[int, int]:
        """Return the smallest and the largest value of an axis."""
        return self.limits.get(axis, (1, ANY))

    def clip(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Return a run's axes within these bounds; what is wanted lowers maxima, never minima."""
        clipped = []
        for axis in axes or self.known_axes:
            low, high = self.of(axis.name)
            high = min(high, axis.maximum)
            low = min(max(low, axis.minimum), high)
            high = max(low, min(high, self.ceilings.get(axis.name, high)))
            capped_by = axis.capped_by if high == axis.maximum else ""
            clipped.append(replace(axis, minimum=low, maximum=high, capped_by=capped_by))
        return tuple(clipped)

    def apply_minima(self, axes: tuple[Axis, ...], plan: Plan) -> tuple[Axis, ...]:
        """Return a run's axes with minima raised to these, as far as ``plan`` is not below them."""
        return tuple(
            replace(axis, minimum=min(max(axis.minimum, self.of(axis.name)[0]), plan[axis.name])) for axis in axes
        )

    def check(self, facts: RunFacts, automation: str) -> None:
        """Refuse bounds that leave no admissible value.

        Raises:
            InputError: names the bounds and what the network and the images admit.
        """
        for axis in facts.axes:
            low, high = self.of(axis.name)
            bounds = max(low, axis.minimum), min(high, axis.maximum)
            if bounds[0] > bounds[1] or axis.clamp(bounds[1]) < bounds[0]:
                argument = f"{'min' if low > axis.maximum else 'max'}_{axis.name}"
                to_write = f"{axis.maximum} or less" if low > axis.maximum else f"{axis.values[0]} or more"
                raise InputError(
                    Problem(
                        f"{automation}: no {axis.name} lies in {low}..{high}",
                        advice=f"This run admits {axis.minimum} to {axis.maximum}, multiples of {axis.multiple}: write "
                        f"{argument}: {to_write}.",
                        argument=argument,
                    )
                )


def check_band(target: float, margin: float) -> None:
    """Refuse a band of memory use that is none.

    Raises:
        ValueError: the target is no share of the memory, or the margin leaves nothing of it.
    """
    if not 0 < target <= 1:
        raise ValueError(f"target_vram_usage must lie in (0, 1], got {target:g}{_as_share(target)}")
    if not 0 <= margin < target:
        raise ValueError(f"safety_margin must lie in [0, target_vram_usage), got {margin:g}{_as_share(margin)}")


def _as_share(value: float) -> str:
    """Return what was probably meant by a percentage."""
    return f"; did you mean {value / 100:g}, {value:g} per cent?" if 1 < value <= 100 else ""


def check_at_least_one(**values: int) -> None:
    """Refuse counts below 1.

    Raises:
        ValueError: names the first of them.
    """
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
