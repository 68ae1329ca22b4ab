"""What traces and measured peaks say of plans that nobody ran: exact where the form is known, monotone always."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.worlds import KIB, MIB, TRACED, a_prior, affine, sizes
from trainauto.core.plan import BatchShape
from trainauto.memory.cost.cost_model import CostModel
from trainauto.memory.cost.ratio_prior import RESERVED, UPPER, RatioPrior
from trainauto.memory.cost.traced_fit import TRACED_TOLERANCE, allocator_prior, fit_prior, measured_prior


@settings(deadline=None)
@given(
    st.floats(0, 400),
    st.floats(20, 500),
    st.sampled_from([0.0, 16.0, 100.0, 300.0]),
    st.floats(0, 1000),
    st.sampled_from([1, 8, 16]),
    sizes,
)
def test_phases_are_found_from_six_small_plans(
    constant: float, linear: float, pairwise: float, optimizer: float, window: int, asked: tuple[int, int]
) -> None:
    def phases(b: int, x: int) -> dict[str, float]:
        x = math.ceil(x / window) * window
        return {"backward": affine(b, x, constant * MIB, linear * KIB, pairwise), "optimizer": optimizer * MIB}

    prior = fit_prior({size: phases(*size) for size in TRACED}, window)
    assert prior.residual < TRACED_TOLERANCE
    # As far as 64 times beyond the largest point.
    assert prior.bytes(*asked) == pytest.approx(max(phases(*asked).values()), rel=0.001)


def test_a_window_costs_what_it_pads_to() -> None:
    prior = fit_prior({(2, 32): {"backward": 1e9}, (2, 64): {"backward": 4e9}, (8, 34): {"backward": 6e9}}, 8)
    assert prior.bytes(8, 33) == prior.bytes(8, 40) == 6e9
    assert prior.bytes(8, 41) > 6e9


@settings(deadline=None)
@given(st.dictionaries(sizes, st.floats(1e6, 1e10), min_size=1, max_size=8), sizes, sizes)
def test_known_points_win_and_more_never_costs_less(
    points: dict[tuple[int, int], float], one: tuple[int, int], other: tuple[int, int]
) -> None:
    for prior in (fit_prior({k: {"all": v} for k, v in points.items()}), measured_prior(points, pairwise=True)):
        for size in points:
            smaller = [peak for known, peak in points.items() if known[0] <= size[0] and known[1] <= size[1]]
            assert prior.bytes(*size) == pytest.approx(max(smaller))
        low = min(one[0], other[0]), min(one[1], other[1])
        assert prior.bytes(*low) <= prior.bytes(*one)
        assert prior.bytes(*low) <= prior.bytes(*other)


def test_a_pairwise_term_is_there_only_where_the_residual_asks() -> None:
    wobble = dict(zip(TRACED, (1.002, 0.998, 1.001, 0.999, 1.0015, 0.9985), strict=True))
    plain = fit_prior({size: {"backward": affine(*size) * wobble[size]} for size in TRACED})
    assert [piece.pairwise for piece in plain.pieces] == [0.0]
    attention = a_prior(lambda b, x: affine(b, x, pairwise=96.0))
    assert attention.pieces[0].pairwise == pytest.approx(96.0, rel=1e-6)


def test_lumps_are_counted_in_bytes_and_doubted_where_they_are_large() -> None:
    """What an allocator adds grows no further once its segments are there: 2 MiB at the smallest plan, 24 at others."""
    live = {size: affine(*size, 4 * MIB, 5 * KIB) for size in TRACED}
    reserved = {size: peak + (2 if size == TRACED[0] else 24) * MIB for size, peak in live.items()}
    shares = fit_prior({size: {"reserved": peak} for size, peak in reserved.items()})
    lumpy = allocator_prior(a_prior(lambda b, x: affine(b, x, 4 * MIB, 5 * KIB)), reserved)
    need = affine(16, 128, 28 * MIB, 5 * KIB)
    assert shares.bytes(16, 128) > 1.035 * need
    assert lumpy.bytes(16, 128) == pytest.approx(need, rel=0.03)
    assert 4 * MIB < lumpy.lumps_bytes < 22 * MIB
    belief = RatioPrior(1.0, 1.001, 0.001, 0.001, 0.0, 0.0)

    def doubt(b: int, x: int) -> float:
        seen, cost = BatchShape(samples=b, extent=x, images=b), CostModel(lumpy, belief)
        return cost.predict(seen, UPPER) / cost.predict(seen) - 1

    assert doubt(2, 32) > 0.2
    assert doubt(16, 256) < 0.01


lumps_mib = st.lists(st.integers(0, 32), min_size=len(TRACED), max_size=len(TRACED))


@settings(max_examples=200, deadline=None)
@given(st.floats(10, 33), st.floats(4, 19), lumps_mib, sizes)
def test_lumps_add_their_bytes_at_most_from_a_network_of_1_kb_to_one_of_10_gb(
    weights: float, per_unit: float, lumps: list[int], size: tuple[int, int]
) -> None:
    """As a share of a tiny step they were the floor of all others: 22.96 GiB where 15 MiB were needed."""

    def live(b: int, x: int) -> float:
        return affine(b, x, 4 * 2**weights, 2**per_unit)

    taken = {traced: live(*traced) + 2 * MIB * lump for traced, lump in zip(TRACED, lumps, strict=True)}
    prior = allocator_prior(a_prior(live), taken)
    seen = BatchShape(samples=size[0], extent=size[1], images=size[0])
    most = CostModel(prior, RESERVED).predict(seen, UPPER)
    assert prior.bytes(*size) < most
    assert most < 1.1 * (prior.bytes(*size) + prior.lumps_bytes) + 1.5 * prior.lumps_bytes + 64 * MIB


@pytest.mark.parametrize("pairwise", [0.0, 16.0])
def test_reserved_bytes_have_the_form_of_live_ones_and_are_no_less(pairwise: float) -> None:
    def form(b: int, x: int) -> float:
        return affine(b, x, 4 * MIB, 5 * KIB, pairwise)

    live = a_prior(form)
    taken = allocator_prior(live, {size: 1.05 * form(*size) + 6 * MIB for size in TRACED})
    assert taken.bytes(16, 128) == pytest.approx(1.05 * form(16, 128) + 6 * MIB, rel=1e-6)
    less = allocator_prior(live, {size: 0.9 * form(*size) for size in TRACED})
    assert less.pieces[0].bytes(16, 128**2) == pytest.approx(form(16, 128), rel=1e-6)
    alone = allocator_prior(live, {(4, 48): form(4, 48) + 9 * MIB})
    assert alone.bytes(16, 128) == pytest.approx(form(16, 128) + 9 * MIB, rel=1e-6)
    with pytest.raises(ValueError, match="at least one traced plan"):
        allocator_prior(live, {})


def test_a_phase_with_a_kink_of_its_own_that_never_is_the_peak_is_left_out() -> None:
    points = {size: {"backward": affine(*size), "other": max(250 * MIB, affine(*size, 0, 50 * KIB))} for size in TRACED}
    prior = fit_prior(points)
    assert [piece.phase for piece in prior.pieces] == ["backward"]
    assert prior.bytes(16, 256) == pytest.approx(affine(16, 256), rel=1e-6)


def test_one_traced_plan_overestimates_both_ways() -> None:
    prior = fit_prior({(4, 64): {"backward": affine(4, 64)}})
    assert prior.bytes(8, 64) > 2 * affine(4, 64)
    assert affine(4, 32, 0.4 * affine(4, 64), 0.6 * affine(4, 64) / 4 / 64**2) < prior.bytes(4, 32)
    assert prior.bytes(4, 32) < affine(4, 64)
    with pytest.raises(ValueError, match="at least one traced plan"):
        fit_prior({})


def test_measured_peaks_too_close_together_tell_no_slope() -> None:
    close = measured_prior({(8, 64): affine(8, 64), (8, 66): 0.99 * affine(8, 66)})
    assert close.bytes(32, 64) >= 4 * affine(8, 64)
    slopes = [later - earlier for earlier, later in pairwise(close.bytes(b, 64) for b in range(9, 40))]
    assert min(slopes) > 0


def test_below_the_smallest_plan_a_falling_line_does_not_reach_nothing() -> None:
    prior = measured_prior({(8, 64): 100 * MIB, (16, 64): 400 * MIB})
    assert prior.bytes(4, 64) == pytest.approx(25 * MIB)
    assert prior.bytes(32, 64) == pytest.approx(1000 * MIB)
