"""How many passes steps need whose conversations differ in length: the figures of docs/finetune.md."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainauto.core.workload import even_ends
from trainauto.data.packing import IntArray, SampleSizes, check_monotone
from trainauto.tasks.finetune.datasets import PassCost

CONVERSATIONS, STEP = 3200, 32


def made_up() -> SampleSizes:
    """20 to 2048 tokens, with no picture, one, or two of 128 to 512 px: patches of 16 px, four to a token."""
    draw = np.random.default_rng(0)
    words = draw.lognormal(4.2, 0.8, CONVERSATIONS).astype(np.int64) + 20
    sides = draw.choice([128, 256, 384, 512], CONVERSATIONS)
    patches = (sides // 16) ** 2 * draw.choice([0, 1, 2], CONVERSATIONS, p=[0.2, 0.6, 0.2])
    return SampleSizes(np.minimum(words + patches // 4, 2048), patches)


def images_of(sizes: SampleSizes) -> IntArray:
    assert sizes.images is not None
    return sizes.images


def padded(tokens: IntArray, ends: list[int]) -> int:
    starts = [0, *ends[:-1]]
    return int(sum((end - start) * tokens[start:end].max() for start, end in zip(starts, ends, strict=True)))


@pytest.mark.parametrize(("room", "passes", "of_number", "share"), [(1, 1071, 3200, 1.077), (4, 306, 800, 0.775)])
def test_the_figures_of_the_page(room: int, passes: int, of_number: int, share: float) -> None:
    sizes = made_up()
    longest = int(np.argmax(sizes.tokens))
    cost = PassCost(int(sizes.tokens[longest]), max(1, int(images_of(sizes)[longest])))
    found, by_tokens, by_number = 0, 0, 0
    for start in range(0, CONVERSATIONS, STEP):
        step = sizes.take(np.arange(start, start + STEP))
        ordered = step.take(step.longest_first())
        ends = cost.ends(ordered, room)
        found += len(ends)
        by_tokens += padded(ordered.tokens, ends)
        by_number += padded(step.tokens, even_ends(STEP, room))
    assert (found, CONVERSATIONS // room) == (passes, of_number)
    assert by_tokens / by_number == pytest.approx(share, abs=1e-3)


def test_larger_passes_never_cost_less() -> None:
    check_monotone(PassCost(40, 64), 60, 20, 100)
    check_monotone(PassCost(40, 1), 60, 20, 100)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 90)), min_size=1, max_size=20), room=st.integers(1, 6)
)
def test_so_many_of_whatever_kind_always_fit(sizes: list[tuple[int, int]], room: int) -> None:
    """Also of conversations with more patches than the longest has: the fewest passes are no more than by number."""
    tokens, rows = (np.asarray(column) for column in zip(*sizes, strict=True))
    some = SampleSizes(tokens, rows)
    ordered = some.take(some.longest_first())
    cost = PassCost(int(tokens.max()), max(1, int(images_of(ordered)[0])))
    ends = cost.ends(ordered, room)
    assert ends[-1] == len(sizes)
    assert len(ends) <= len(even_ends(len(sizes), room))
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        fits = (end - start) * ordered.tokens[start] <= room * cost.tokens
        assert end - start <= room or (fits and images_of(ordered)[start:end].sum() <= room * cost.rows)
