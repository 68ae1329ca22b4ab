"""Costs are whole numbers that never fall when a batch grows."""

import numpy as np
import pytest

from tests.unit.data.packing.sets_of_samples import COSTS
from trainauto.data.packing import BatchCost, IntArray, PaddedCost, TokenCost, check_monotone


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_ours_are_monotone(cost: BatchCost) -> None:
    check_monotone(cost, longest_tokens=4096, most_samples=1024, most_images=64)


def test_tokens_are_padded_to_a_multiple() -> None:
    ones = np.array([1, 2])
    assert TokenCost().cost(ones, np.array([7, 9]), ones).tolist() == [7, 18]
    assert PaddedCost(TokenCost(), 8).cost(ones, np.array([7, 9]), ones).tolist() == [8, 32]
    with pytest.raises(ValueError, match="multiple of 0"):
        PaddedCost(TokenCost(), 0)


class Priced(TokenCost):
    """A cost that a test gives as a function."""

    def __init__(self, price) -> None:
        super().__init__()
        object.__setattr__(self, "price", price)

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        return self.price(samples, longest, images)


@pytest.mark.parametrize(
    ("price", "said"),
    [
        (lambda n, t, i: n * t / 2, "must be integers, got float64"),
        (lambda n, t, i: n * t - 5, r"negative, but 1 x 0 tokens with 0 images costs -5 tokens"),
        (lambda n, t, i: (n * t).ravel(), "have shape"),
        # A batch of 8s runs on a faster kernel that needs less.
        (
            lambda n, t, i: n * t + (n % 8 > 0) * 9999,
            r"but 7 x 0 tokens .* costs 9999 tokens and 8 x 0 tokens .* costs 0",
        ),
        (lambda n, t, i: n * t * (1 + (t < 512)) + i, r"511 tokens .* and 1 x 512 tokens"),
        (lambda n, t, i: n * t + abs(i - 30), r"with 0 images .* with 1 images"),
    ],
    ids=["fractions", "negative", "another shape", "samples", "length", "images"],
)
def test_what_contradicts_is_named(price, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_monotone(Priced(price), longest_tokens=2048, most_samples=300, most_images=40)
