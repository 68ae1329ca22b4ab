"""What is believed of cards before a run."""

from trainauto.memory.cost.ratio_prior import ALLOCATED, BENCHMARKED, PLAIN


def test_more_is_doubted_where_kernels_may_take_more() -> None:
    widths = [belief.upper_ratio / belief.median_ratio for belief in (PLAIN, ALLOCATED, BENCHMARKED)]
    assert widths == sorted(widths)
