"""Steps that repeat in the simulated allocator: what they reserve, and the least that they fit in."""

from random import Random

import pytest

from trainauto.memory.cuda_allocator.allocator import (
    AllocationEvent,
    CachingAllocator,
    SimulatedOutOfMemoryError,
    replay,
)
from trainauto.memory.cuda_allocator.steps import LEAST_RESOLUTION, needed_bytes, peak_reserved_bytes, repeated

MIB = 2**20
MODES = pytest.mark.parametrize("expandable", [False, True], ids=["native", "expandable"])


def events(*pairs: tuple[int, float]) -> list[AllocationEvent]:
    return [AllocationEvent(ident, int(size_mib * MIB)) for ident, size_mib in pairs]


def test_what_outlives_a_step_is_freed_where_the_next_one_frees_its_like() -> None:
    before = events((0, 7), (1, 3))  # a weight, the gradient of the first step
    step = events((2, 9), (1, 0), (3, 3), (4, 5), (2, 0))  # 3 is the new gradient; 4 has nothing like it before
    once = events((0, 7), (5, 9), (6, 3), (7, 5), (5, 0), (7, 0))  # the very first step finds no gradient
    assert list(repeated(step, 1, before)) == once
    assert list(repeated(step, 2, before)) == [*once, *events((8, 9), (6, 0), (9, 3), (10, 5), (8, 0), (10, 0))]
    assert list(repeated(step, 0, before)) == before[:1]


def test_the_first_step_takes_a_workspace_where_it_needs_it_first() -> None:
    before, step = events((0, 7), (1, 8)), events((2, 9), (3, 3), (2, 0), (3, 0))
    once = events((0, 7), (4, 9), (1, 8), (5, 3), (4, 0), (5, 0))
    late = [(1, before[1])]
    assert list(repeated(step, 1, before, late)) == once
    assert list(repeated(step, 2, before, late)) == [*once, *events((6, 9), (7, 3), (6, 0), (7, 0))]


def test_the_first_step_leaves_out_what_only_later_ones_copy() -> None:
    before, step = events((0, 7), (1, 2)), events((2, 2), (1, 0), (3, 9), (3, 0))  # 2 is a copy that replaces 1
    once = events((0, 7), (4, 9), (4, 0))
    left_out = events((2, 0))
    assert list(repeated(step, 1, before, [(0, left_out[0])])) == once
    later = [*once, *events((5, 2), (6, 9), (6, 0))]
    assert list(repeated(step, 2, before, [(0, left_out[0])])) == later
    assert list(repeated(step, 3, before, [(0, left_out[0])])) == [*later, *events((7, 2), (5, 0), (8, 9), (8, 0))]


def test_gradients_of_one_size_are_freed_in_their_order() -> None:
    step = events((0, 0), (1, 0), (2, 3), (3, 3))
    names = [event.ident for event in repeated(step, 2, events((0, 3), (1, 3)))]
    assert names == [4, 5, 4, 5, 6, 7]


def test_a_step_that_makes_the_same_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="allocation 1 is made, but it is live already"):
        peak_reserved_bytes(events((1, 5), (1, 5)), expandable=False)
    with pytest.raises(ValueError, match="allocation 1 is freed, but it is not live"):
        peak_reserved_bytes(events((1, 0)), expandable=False)


@pytest.mark.parametrize(("expandable", "expected"), [(False, [50, 100, 100, 100]), (True, [60, 80, 100, 100])])
def test_the_cache_that_a_step_leaves_may_not_fit_the_next(expandable: bool, expected: list[int]) -> None:
    # what stays is cut from the 50 MiB that were just freed: the next step finds no 50 in one piece
    before, step = events((0, 20)), events((1, 50), (1, 0), (2, 20), (0, 0))
    reserved = [peak_reserved_bytes(step, expandable=expandable, before=before, warm_steps=n) for n in range(4)]
    assert [size // MIB for size in reserved] == expected


def flushes(step: list[AllocationEvent], before: list[AllocationEvent], expandable: bool, limit: int) -> int | None:
    """How often the third step made the allocator give its cache back; ``None`` where memory ran out."""
    allocator, counts = CachingAllocator(expandable, limit), []
    every = list(repeated(step, 3, before))
    ends = [len(list(repeated(step, times, before))) for times in (2, 3)]
    try:
        for part in (every[: ends[0]], every[ends[0] : ends[1]]):
            replay(part, allocator)
            counts.append(allocator.alloc_retries)
    except SimulatedOutOfMemoryError:
        return None
    return counts[1] - counts[0]


def a_step(seed: int) -> list[AllocationEvent]:
    """Allocations of all sizes that live for a while."""
    random = Random(seed)
    live: list[int] = []
    found: list[AllocationEvent] = []
    for ident in range(10, 210):
        found.append(AllocationEvent(ident, random.choice((1, 3, 7, 12, 18, 40)) * MIB + 512 * random.randrange(999)))
        live.append(ident)
        while len(live) > random.randrange(2, 30):
            found.append(AllocationEvent(live.pop(random.randrange(len(live))), 0))
    return [*found, *(AllocationEvent(ident, 0) for ident in live)]


@MODES
@pytest.mark.parametrize("seed", range(5))
def test_the_least_is_where_steps_just_need_not_flush(expandable: bool, seed: int) -> None:
    before, step = events((0, 33), (1, 5)), a_step(seed)
    least = needed_bytes(step, expandable=expandable, before=before).least_bytes
    assert flushes(step, before, expandable, least) == 0
    assert flushes(step, before, expandable, int((1 - 2 * LEAST_RESOLUTION) * least)) != 0
    assert least <= peak_reserved_bytes(step, expandable=expandable, before=before)


def test_what_is_given_back_for_good_is_not_needed() -> None:
    # Without a limit 40 MiB of before stay cached beside 60, which do not fit there; with one they go back.
    once, step = events((1, 40), (1, 0)), events((2, 60), (2, 0))
    assert peak_reserved_bytes(step, expandable=False, before=once) == 100 * MIB
    assert needed_bytes(step, expandable=False, before=once).least_bytes <= (1 + LEAST_RESOLUTION) * 60 * MIB


def test_what_nothing_is_kept_of_needs_no_search() -> None:
    step = events((1, 40), (1, 0))
    assert needed_bytes(step, expandable=False).least_bytes == peak_reserved_bytes(step, expandable=False) == 40 * MIB


def test_what_the_first_step_makes_after_its_last_event_is_there_too() -> None:
    """An optimizer that writes in place has its state, and no event after it (issue 42)."""
    step, before = events((1, 4), (1, 0)), events((7, 4), (8, 8))
    run = list(repeated(step, 3, before, [(2, before[1])]))
    assert [event.ident for event in run].index(8) == 3
    assert needed_bytes(step, expandable=False, before=before, late=[(2, before[1])]).allocated_bytes == 16 * MIB
