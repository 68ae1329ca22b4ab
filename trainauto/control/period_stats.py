"""What the steps of a period have shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from trainauto.core.records import PeakReading


@dataclass
class PeriodStats:
    """Readings of the steps of one period under one plan, in bytes, and how fast they went.

    Attributes:
        peaks: peak use of each step; where its samples were smaller than they may be, at least what is expected of the
            plan.
        filled: those among them of steps whose samples were as large as the plan allows.
        reserved: what the allocator held at most in each step, where that is known.
        flushed_steps: how many of them continued only after the allocator had given back what it kept.
        available: the least that it could have held in any of them; ``None`` if unknown.
        units_per_s: units of work (pixels, tokens) that each step trained in a second.
    """

    peaks: list[int] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)
    flushed_steps: int = 0
    available: int | None = None
    units_per_s: list[float] = field(default_factory=list)

    def add(
        self,
        reading: PeakReading,
        units_per_s: float | None = None,
        *,
        fills_plan: bool = True,
        expected_bytes: int | None = None,
    ) -> None:
        """Take in the reading of a step.

        Args:
            reading: of the step.
            units_per_s: how fast it was.
            fills_plan: its samples were as large as the plan allows; what smaller ones took, the plan needs at least.
            expected_bytes: what the plan is expected to need; ``None`` where nothing is known yet.
        """
        if units_per_s is not None:
            self.units_per_s.append(units_per_s)
        if fills_plan:
            self.peaks.append(reading.allocated)
            self.filled.append(reading.allocated)
        else:
            self.peaks.append(max(reading.allocated, expected_bytes or 0))
        if reading.reserved is not None and fills_plan:
            self.reserved.append(reading.reserved)
        self.flushed_steps += bool(reading.alloc_retries)
        if reading.available is not None:
            self.available = reading.available if self.available is None else min(self.available, reading.available)

    @property
    def typical_peak(self) -> int | None:
        """What the plan needs: a spike is something else."""
        return int(median(self.filled or self.peaks)) if self.peaks else None

    @property
    def flushes(self) -> bool:
        """Say whether most steps continued only so; one that does after a change of plans is something else."""
        return 2 * self.flushed_steps > len(self.peaks)

    @property
    def typical_reserved(self) -> int | None:
        """What the plan makes the allocator hold."""
        return int(median(self.reserved)) if self.reserved else None

    @property
    def typical_units_per_s(self) -> float | None:
        """How fast the plan is."""
        return median(self.units_per_s) if self.units_per_s else None

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume in mid-period needs."""
        return {
            "peaks": list(self.peaks),
            "filled": list(self.filled),
            "reserved": list(self.reserved),
            "flushed_steps": self.flushed_steps,
            "available": self.available,
            "units_per_s": list(self.units_per_s),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "PeriodStats":
        """Rebuild :meth:`state_dict`."""
        return cls(
            [int(peak) for peak in state["peaks"]],
            [int(peak) for peak in state.get("filled", state["peaks"])],  # earlier versions took all for such
            [int(held) for held in state["reserved"]],
            int(state.get("flushed_steps", 0)),  # earlier versions counted flushes
            state["available"],
            [float(rate) for rate in state.get("units_per_s", state.get("pixels_per_s", []))],
        )
