"""Shares that become whole numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainauto.core.quotas import apportioned, quotas


@given(st.integers(0, 500), st.dictionaries(st.text(max_size=3), st.floats(0, 100), max_size=6))
def test_shares_are_whole_and_within_one_of_exact(total: int, weights: dict[str, float]) -> None:
    shares = apportioned(total, weights)
    weight = sum(weights.values())
    if weight <= 0:
        assert shares == {}
        return
    assert sum(shares.values()) == total
    assert all(abs(shares[name] - total * weights[name] / weight) < 1 + 1e-9 for name in weights)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6), st.integers(0, 500))
def test_quotas_are_within_one_of_their_shares(weights: list[float], total: int) -> None:
    shares = np.array(weights) / sum(weights)
    counts = quotas(shares, total)
    assert counts.sum() == total
    assert np.all(np.abs(counts - shares * total) < 1)
