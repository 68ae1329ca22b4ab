"""What the steps of one plan take of one card: allocated, reserved by either kind of segments, by phase and module."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainauto.core.plan import BatchShape, Plan
from trainauto.memory.cost.cost_model import UPPER, CostModel
from trainauto.memory.cost.ratio_prior import OF_REQUESTED, ON_CARD, Kernels, RatioPrior, reserved_belief
from trainauto.memory.cost.traced_fit import fit_prior
from trainauto.memory.cuda_allocator.allocator import CachingAllocator, SimulatedOutOfMemoryError, replay
from trainauto.memory.cuda_allocator.segments import Segments
from trainauto.memory.cuda_allocator.steps import repeated
from trainauto.memory.tracing.trace import Trace

KINDS: tuple[Segments, ...] = ("native", "expandable")

WARM_STEPS = 2
"""Steps before the one that is asked whether it flushes the cache: from the third on, they are alike."""


@dataclass(frozen=True)
class Likely:
    """Bytes that are expected, and what they stay within with 99 % probability."""

    expected_bytes: int
    most_bytes: int


@dataclass(frozen=True)
class Reserved:
    """What torch's CUDA allocator reserves with one kind of segments.

    Attributes:
        unlimited: on a card with plenty of memory.
        least: the memory of the smallest card on which no step has to flush the cache.
        on_card_bytes: with the memory that this card has, as expected; ``None`` where a step runs out of it.
        flushes: every step flushes the cache there, which takes time.
    """

    unlimited: Likely
    least: Likely
    on_card_bytes: int | None
    flushes: bool


@dataclass(frozen=True)
class PlanMemory:
    """What the steps of a plan take of a card.

    Attributes:
        plan: the plan.
        available_bytes: what the allocator may take of the card.
        allocated: highest bytes of the allocator's blocks in use.
        reserved: what the allocator takes of the card, by kind of segments.
        trace: of a step; :attr:`~trainauto.memory.tracing.trace.Trace.held_at_peak` tells its peak by phase and module.
    """

    plan: Plan
    available_bytes: int
    allocated: Likely
    reserved: Mapping[Segments, Reserved]
    trace: Trace

    def to_dict(self) -> dict[str, Any]:
        """Return it for machines, without the trace's events."""
        held = self.trace.held_at_peak
        return {
            "plan": self.plan.to_dict(),
            "available_bytes": self.available_bytes,
            "allocated": asdict(self.allocated),
            "reserved": {kind: asdict(one) for kind, one in self.reserved.items()},
            "phase_peaks_bytes": dict(self.trace.phase_peaks_bytes),
            **({"held_at_peak": held.to_dict()} if held else {}),
        }


def memory_of(plan: Plan, trace: Trace, kernels: Kernels, available_bytes: int, planned: Segments) -> PlanMemory:
    """Simulate torch's allocator for a plan's steps, with either kind of segments.

    Args:
        plan: the plan.
        trace: of its step.
        kernels: what they take that no trace knows.
        available_bytes: what the allocator may take of the card.
        planned: the kind of segments that a run there has: allocated bytes are theirs.
    """
    needed = {kind: trace.needed_bytes(expandable=kind == "expandable") for kind in KINDS}
    belief = reserved_belief(kernels)
    reserved = {
        kind: Reserved(
            likely(found.reserved_bytes, belief),
            likely(found.least_bytes, belief),
            *_within(trace, kind, available_bytes),
        )
        for kind, found in needed.items()
    }
    peak_bytes = trace.peak_bytes if kernels in OF_REQUESTED else needed[planned].allocated_bytes
    return PlanMemory(plan, available_bytes, likely(peak_bytes, ON_CARD[kernels]), reserved, trace)


def likely(predicted_bytes: int, belief: RatioPrior) -> Likely:
    """Return what is expected by the bytes of a simulation, and what that stays within."""
    cost, shape = CostModel(fit_prior({(1, 1): {"step": predicted_bytes}}), belief), BatchShape(1, 1)
    return Likely(cost.predict(shape), cost.predict(shape, UPPER))


def _within(trace: Trace, kind: Segments, available_bytes: int) -> tuple[int | None, bool]:
    """Return what is reserved on a card of so much memory, and whether every step flushes the cache there."""
    allocator = CachingAllocator(kind == "expandable", available_bytes)
    events = list(repeated(trace.events, 1 + WARM_STEPS, trace.before, trace.late))
    warm = sum(1 for _ in repeated(trace.events, WARM_STEPS, trace.before, trace.late))
    try:
        replay(events[:warm], allocator)
        flushes = allocator.alloc_retries
        replay(events[warm:], allocator)
    except SimulatedOutOfMemoryError:
        return None, False
    return allocator.peak_reserved_bytes, allocator.alloc_retries > flushes
