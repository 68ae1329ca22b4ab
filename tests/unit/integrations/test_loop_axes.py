"""What may grow in a loop of one's own."""

import numpy as np
import pytest

from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.integrations.loop_axes import Growth, Range


def test_a_batch_alone_a_batch_and_a_size_and_a_value_that_stays() -> None:
    alone = Growth.of(Range(16, 512), None, None, None)
    assert (alone.plan, [(axis.name, axis.minimum, axis.maximum) for axis in alone.axes]) == (
        Plan.of(batch_size=16),
        [("batch_size", 1, 512)],
    )
    both = Growth.of(Range(4, 64), Range(32, 100, minimum=16, multiple=8, power=2), None, None)
    assert [axis.name for axis in both.axes] == ["size", "batch_size"]  # it grows first
    assert both.plan == Plan.of(batch_size=4, size=32)
    assert (both.axes[0].power, both.axes[0].clamp(99)) == (2, 96)
    (fixed,) = Growth.of(8, None, None, None).axes
    assert list(fixed.values) == [8]


def test_tokens_are_counted_in_rows_of_the_longest_sample() -> None:
    growth = Growth.of(None, None, Range(1000, 100_000), 128)
    (axis,) = growth.axes
    assert growth.plan == Plan.of(tokens=896)
    assert (axis.minimum, axis.maximum, axis.multiple) == (128, 99_968, 128)
    (above,) = Growth.of(None, None, Range(1000, 100_000, minimum=512), 128).axes
    assert above.minimum == 512
    with pytest.raises(InputError, match="100 tokens hold no sample of 128"):
        Growth.of(None, None, 100, 128)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None, None, None), "give either batch_size or tokens"),
        ((4, None, 512, 8), "give either batch_size or tokens"),
        ((None, None, 512, None), "tokens needs lengths"),
        ((None, 8, 512, 8), "leave size out"),
        ((Range(16, 8), None, None, None), "batch_size starts with 16, which is no multiple of 1 between 1 and 8"),
        ((0, None, None, None), "batch_size is 0: it must be at least 1"),
        (((4, 8), None, None, None), r"batch_size is \(4, 8\): give a whole number, or a Range"),
        ((4.0, None, None, None), "batch_size is 4.0: give a whole number"),
        ((Range(4, 8, minimum=9), None, None, None), "need 1 <= minimum <= maximum"),
        ((4, Range(30, 64, multiple=8), None, None), "size starts with 30, which is no multiple of 8"),
    ],
)
def test_what_leaves_no_plan_is_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Growth.of(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [((4, 8.5), "maximum of a Range is 8.5"), ((0, 8), "start of a Range is 0"), ((4, 8, -1), "minimum")],
)
def test_a_range_is_of_whole_numbers(values: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Range(*values)


def test_numbers_of_numpy_become_pythons() -> None:
    """Logs hold no others."""
    growth = Growth.of(None, None, Range(np.int64(64), np.int64(128)), np.int64(16))
    assert {type(value) for value in (growth.longest, growth.plan.size, growth.axes[0].maximum)} == {int}
    assert type(Growth.of(np.int64(4), None, None, None).plan.batch_size) is int
