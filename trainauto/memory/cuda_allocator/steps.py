"""What a training run reserves whose steps are alike, and the least that it fits in, by simulation."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from trainauto.memory.cuda_allocator.allocator import (
    STREAM_SHIFT,
    AllocationEvent,
    CachingAllocator,
    SimulatedOutOfMemoryError,
    replay,
)

LEAST_RESOLUTION = 0.05
"""Segments that grow are mostly that near without any search; a finer search would make `plan` a seventh slower."""

WITHOUT_STREAM = (1 << STREAM_SHIFT) - 1
"""Bits of an ident that name no stream."""

Late = Sequence[tuple[int, AllocationEvent]]
"""What only the first step does, or leaves out.

Allocations, each with the number of a step's events that come before it; those of 0 bytes name allocations of the step
itself that the first one does not make.
"""


def peak_reserved_bytes(
    events: Sequence[AllocationEvent],
    *,
    expandable: bool,
    before: Sequence[AllocationEvent] = (),
    late: Late = (),
    warm_steps: int = 2,
) -> int:
    """Return what a training run reserves whose every step does ``events``, on a device that is large enough.

    Args:
        events: one step of many alike.
        expandable: whether segments expand.
        before: what is live when the step begins, see :func:`repeated`.
        late: what the first step takes and all keep, see :func:`repeated`.
        warm_steps: how often the step is repeated. Without a limit reserved bytes never fall, and the cache that a step
            leaves behind may not yet fit the next one.

    Raises:
        ValueError: an ident is allocated while live, or freed while not.
    """
    allocator = CachingAllocator(expandable)
    replay(repeated(events, 1 + warm_steps, before, late), allocator)
    return allocator.peak_reserved_bytes


class Needed(NamedTuple):
    """What torch's allocator needs for a training run whose steps are alike.

    Attributes:
        allocated_bytes: highest bytes of the blocks in use where memory is plenty: what torch calls allocated.
        reserved_bytes: what it reserves there.
        least_bytes: the memory of the smallest device, nearly, on which no step has to flush the cache.
    """

    allocated_bytes: int
    reserved_bytes: int
    least_bytes: int


def needed_bytes(
    events: Sequence[AllocationEvent],
    *,
    expandable: bool,
    before: Sequence[AllocationEvent] = (),
    late: Late = (),
    warm_steps: int = 2,
    resolution: float = LEAST_RESOLUTION,
) -> Needed:
    """Return what a run needs that does ``events`` in each step.

    The least is less than what it reserves of a larger device: before it fails, the allocator gives its cache back, and
    may need less of it from then on. Of 43 published batches that fitted a card it fits 42 in a simulation under that
    limit, 39 by what it would reserve without one (``scripts/bench/data/published_timm_batches.csv``). Where every step
    has to flush, memory suffices, too, but time is lost: that does not count as fitting here.

    Args:
        events: one step of many alike.
        expandable: whether segments expand.
        before: what is live when the step begins, see :func:`repeated`.
        late: what the first step takes and all keep, see :func:`repeated`.
        warm_steps: how often the step is repeated.
        resolution: how much too large the least may be, as a share of it; it is not too small for these very steps.

    Raises:
        ValueError: an ident is allocated while live, or freed while not.
    """
    every = list(repeated(events, 1 + warm_steps, before, late))
    roomy = CachingAllocator(expandable)
    replay(every, roomy)
    low, high = roomy.peak_allocated_bytes, roomy.peak_reserved_bytes
    warm = sum(1 for _ in repeated(events, warm_steps, before, late)) if high - low > resolution * high else 0
    while high - low > resolution * high:
        middle = (low + high) // 2
        if _is_quiet(every[:warm], every[warm:], CachingAllocator(expandable, middle)):
            high = middle
        else:
            low = middle
    return Needed(roomy.peak_allocated_bytes, roomy.peak_reserved_bytes, high)


def _is_quiet(warm: Sequence[AllocationEvent], step: Sequence[AllocationEvent], allocator: CachingAllocator) -> bool:
    """Say whether a step fits after others, with nothing given back."""
    try:
        replay(warm, allocator)
        flushes = allocator.alloc_retries
        replay(step, allocator)
    except SimulatedOutOfMemoryError:
        return False
    return allocator.alloc_retries == flushes


def repeated(
    step: Sequence[AllocationEvent], times: int, before: Sequence[AllocationEvent] = (), late: Late = ()
) -> Iterator[AllocationEvent]:
    """Yield ``before``, then ``step`` several times, with new idents each time: a run from its first step on.

    What the step frees of ``before``, gradients above all, is left out of it: the first step does not find it.
    What ``late`` names is left out, too, and allocated within the first step, to stay: workspaces of libraries, states
    of optimizers. Copies of buffers in case the step fails are left out of the first step: no step has changed them.
    Allocations that outlive a step (gradients, the last loss) are freed by the next one, where ``step`` frees one of
    their size that it found live. Those without such a counterpart are freed after their repetition.

    Raises:
        ValueError: an ident is allocated while live.
    """
    heirs = _successors(step, before)
    _, freed = _outcome(step)
    if unknown := set(freed) - _outcome(before)[0].keys():
        raise ValueError(f"allocation {min(unknown)} is freed, but it is not live")
    absent = {*freed, *(event.ident for _, event in late)}
    yield from (event for event in before if event.ident not in absent)
    places = deque(sorted(entry for entry in late if entry[1].size_bytes))
    left_out = {event.ident for _, event in late if not event.size_bytes}
    fresh = count(1 + max((event.ident & WITHOUT_STREAM for event in (*before, *step)), default=0))
    inherited: dict[int, int] = {}
    for _ in range(times):
        names: dict[int, int] = {}
        for place, (ident, size_bytes) in enumerate(step):
            while places and places[0][0] <= place:
                yield places.popleft()[1]
            if size_bytes:
                if ident not in left_out:
                    names[ident] = ident & ~WITHOUT_STREAM | next(fresh)
                    yield AllocationEvent(names[ident], size_bytes)
            elif ident in names:
                yield AllocationEvent(names.pop(ident), 0)
            elif ident in inherited:
                yield AllocationEvent(inherited.pop(ident), 0)
        yield from (event for _, event in places)  # after the step's last event
        places.clear()
        inherited = {old: names.pop(new) for old, new in heirs.items() if new not in left_out}
        left_out.clear()
        yield from (AllocationEvent(name, 0) for name in names.values())


def _successors(step: Sequence[AllocationEvent], before: Sequence[AllocationEvent]) -> dict[int, int]:
    """Map idents that ``step`` frees but found live to those of the same size and stream that it leaves, by age."""
    sizes, _ = _outcome(before)
    live, freed = _outcome(step)
    alike: dict[tuple[int, int], deque[int]] = {}
    for ident, size_bytes in live.items():
        alike.setdefault((size_bytes, ident >> STREAM_SHIFT), deque()).append(ident)
    kinds = {ident: (sizes.get(ident, 0), ident >> STREAM_SHIFT) for ident in freed}
    return {ident: alike[kind].popleft() for ident, kind in kinds.items() if alike.get(kind)}


def _outcome(events: Sequence[AllocationEvent]) -> tuple[dict[int, int], list[int]]:
    """Return the sizes of what events leave live, and the idents that they free without having allocated them."""
    live: dict[int, int] = {}
    freed: list[int] = []
    for ident, size_bytes in events:
        if size_bytes:
            if ident in live:
                raise ValueError(f"allocation {ident} is made, but it is live already")
            live[ident] = size_bytes
        elif live.pop(ident, None) is None:
            freed.append(ident)
    return live, freed
