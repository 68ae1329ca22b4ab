"""Bytes between traced sizes."""

from collections.abc import Callable
from dataclasses import replace
from math import exp

import numpy as np
import pytest

from trainauto.memory.cost.ratio_prior import PROCESS, UPPER, RatioPrior, student4
from trainauto.tasks.multitask.prediction.batch_memory import BatchMemory, Grid, PaddedShape, interpolated

Phase = Callable[[float, float, float], float]
EXACT = RatioPrior(1.0, 1.05, 0.01, 0.01, 0.0, 0.0)
GRID = Grid((2, 32), (8, 64), (1, 4))


def backward(n: float, s: float, m: float) -> float:
    return 1000 + n * (50 + 7 * s + 300 * m + s * m)


def memory_of(grid: Grid, *phases: Phase, belief: RatioPrior = EXACT, held: int = 0) -> BatchMemory:
    peaks = {shape: {str(i): phase(*shape) for i, phase in enumerate(phases)} for shape in grid.shapes()}
    pieces, residual = interpolated(grid, peaks)
    return BatchMemory(pieces, (grid.tokens[0], grid.images[0]), held, belief, bool(held), residual)


@pytest.mark.parametrize("shape", [(1, 8, 1), (7, 30, 2), (100, 64, 4), (2, 64, 3)])
def test_what_is_a_line_in_every_direction_is_exact(shape: tuple[int, int, int]) -> None:
    memory = memory_of(GRID, backward)
    assert memory.residual < 1e-6
    assert float(memory.live_bytes(*shape)) == pytest.approx(backward(*shape), rel=1e-6)


def test_the_highest_phase_counts_and_a_constant_one_is_no_line() -> None:
    """One line through peaks would be 34 % wrong between 4 and 32 samples of such a step."""

    def optimizer(_n: float, _s: float, _m: float) -> float:
        return 9000.0

    memory = memory_of(GRID, backward, optimizer)
    for samples in (1, 4, 12, 64):
        assert float(memory.live_bytes(samples, 20, 2)) == pytest.approx(max(9000, backward(samples, 20, 2)), rel=1e-6)


def test_a_middle_that_bends_is_followed() -> None:
    def pairs(n: float, s: float, m: float) -> float:
        return n * (s * s + 10 * m)

    memory = memory_of(Grid((2, 32), (8, 36, 64), (1, 4)), pairs)
    for shape in [(2, 8, 1), (32, 36, 4), (9, 64, 2)]:
        assert float(memory.live_bytes(*shape)) == pytest.approx(pairs(*shape), rel=0.01)
    assert float(memory.live_bytes(8, 50, 2)) >= pairs(8, 50, 2)


def test_bytes_never_fall_where_a_batch_grows() -> None:
    memory = memory_of(GRID, backward)
    sizes = np.arange(1, 80)
    for axis in range(3):
        shape = [np.array([9]), np.array([20]), np.array([2])]
        shape[axis] = sizes
        assert (np.diff(memory.live_bytes(*shape)) >= 0).all()


def test_sizes_of_one_value_serve() -> None:
    memory = memory_of(Grid((2, 32), (6,), (3,)), backward)
    assert float(memory.live_bytes(10, 6, 3)) == pytest.approx(backward(10, 6, 3))
    assert float(memory.live_bytes(10, 2, 1)) == pytest.approx(backward(10, 6, 3))  # no smaller than what was traced


def test_what_kernels_take_is_added() -> None:
    on_cpu = memory_of(GRID, backward, belief=PROCESS)
    whole = PROCESS.median_ratio * (backward(9, 20, 2) + PROCESS.constant_bytes)
    assert float(on_cpu.typical_bytes(9, 20, 2)) == pytest.approx(whole)
    on_card = memory_of(GRID, backward, belief=RatioPrior(1.1, 1.2, 0.0, 0.0, 0.0), held=10_000)
    assert float(on_card.typical_bytes(9, 20, 2)) == pytest.approx(1.1 * backward(9, 20, 2) + 1000)


def test_a_batch_much_of_which_may_be_a_constant_is_doubted_more() -> None:
    memory = memory_of(GRID, backward, belief=PROCESS)
    assert memory.own_scale(1e7) > 2 * memory.own_scale(1e9)


def test_points_are_all_there() -> None:
    assert len(GRID.shapes()) == 8
    assert GRID.shapes()[-1] == PaddedShape(32, 64, 4)


def test_what_pieces_miss_adds_no_more_than_that_at_the_upper_quantile() -> None:
    memory = replace(memory_of(GRID, backward), residual=6.6)
    assert exp(student4(UPPER) * memory.own_scale(1e12)) == pytest.approx(7.6)
