"""Cost models where nothing could be traced: a few measured peaks, and the caution that they ask for."""

import pytest

from tests.unit.worlds import KIB, MIB, a_prior, affine, shape
from trainauto.memory.cost.cost_model import CostModel
from trainauto.memory.cost.ratio_prior import UPPER, RatioPrior


def test_two_measured_plans_give_a_line_and_five_to_ten_per_cent() -> None:
    cost = CostModel(None, pairwise=False)
    assert not cost.can_predict
    for size in ((4, 48), (4, 112)):
        cost.observe(shape(*size), int(affine(*size)))
    for size in ((4, 120), (4, 144), (6, 128)):
        assert affine(*size) <= cost.predict(shape(*size)) <= 1.02 * affine(*size)
        assert 1.03 * affine(*size) <= cost.predict(shape(*size), UPPER) <= 1.10 * affine(*size)


@pytest.mark.parametrize("hidden", [0.0, 60 * MIB, -20 * MIB])  # what a CPU's baseline holds: all, none, too much
def test_one_measured_plan_is_cautious_where_a_baseline_hides_the_constant(hidden: float) -> None:
    peaks = [(size, affine(*size, hidden, 100 * KIB)) for size in ((4, 32), (4, 64), (8, 64))]
    cost = CostModel(None, pairwise=False)
    cost.observe(shape(*peaks[0][0]), int(peaks[0][1]))
    for size, peak in peaks[1:]:
        assert peak <= cost.predict(shape(*size), UPPER)
    cost.observe(shape(*peaks[2][0]), int(peaks[2][1]))
    assert cost.predict(shape(12, 64)) == pytest.approx(affine(12, 64, hidden, 100 * KIB), rel=0.03)


def test_a_belief_carries_the_weights_that_a_baseline_holds() -> None:
    belief = RatioPrior(1.06, 1.2, 0.004, 0.003, constant_bytes=-100 * MIB, constant_scale_bytes=5 * MIB)
    cost = CostModel(a_prior(), belief)
    cost.observe(shape(4, 64), int(1.06 * affine(4, 64, 0.0)))
    assert cost.predict(shape(6, 64)) == pytest.approx(1.06 * affine(6, 64, 0.0), rel=0.01)


def test_attention_that_may_be_written_out_is_expected_and_found_from_the_third_plan() -> None:
    def attention(b: int, x: int) -> float:
        return affine(b, x, pairwise=96.0)

    bold, careful = CostModel(None, pairwise=False), CostModel(None)
    for size in ((4, 32), (4, 48)):
        bold.observe(shape(*size), int(attention(*size)))
        careful.observe(shape(*size), int(attention(*size)))
        assert careful.predict(shape(4, 72), UPPER) >= attention(4, 72)
    assert bold.predict(shape(4, 72), UPPER) < attention(4, 72)
    careful.observe(shape(4, 60), int(attention(4, 60)))
    assert careful.predict(shape(4, 72)) == pytest.approx(attention(4, 72), rel=0.01)
    assert careful.predict(shape(8, 60)) == pytest.approx(attention(8, 60), rel=0.02)


def test_a_failure_that_the_peaks_did_not_foretell_bends_the_line() -> None:
    cost = CostModel(None, pairwise=False)
    cost.observe(shape(2, 32), int(affine(2, 32, pairwise=96.0)))
    failed = int(0.8 * affine(2, 138, pairwise=96.0))
    assert cost.predict(shape(2, 138)) < failed
    between = cost.predict(shape(2, 120))
    cost.observe_failure(shape(2, 138), failed)
    assert cost.predict(shape(2, 138)) > failed
    assert cost.predict(shape(2, 120)) > 3 * between
