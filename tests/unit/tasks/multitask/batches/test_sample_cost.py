"""What padded batches of several kinds take."""

import logging
from typing import Any

import numpy as np
import pytest

from tests.mixed_sets import PricedMib
from trainauto.core.errors import InputError
from trainauto.core.units import GIB, MIB
from trainauto.data.packing import TokenCost, check_monotone
from trainauto.tasks.multitask.batches.sample_cost import BesideHeld, PaddedUnits, cost_in_bytes, padded_costs
from trainauto.tasks.multitask.prediction.published_constants import published_gib


@pytest.mark.parametrize("cost", [cost_in_bytes(None), PaddedUnits(64), BesideHeld(PricedMib(), 9 * MIB)])
def test_costs_are_whole_and_never_fall(cost: Any) -> None:
    check_monotone(cost, 100, 64, 32)


def test_published_constants_price_every_sample_with_the_most_images_of_its_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    samples, most = np.array([1, 16]), np.array([1, 2])
    with caplog.at_level(logging.WARNING):
        costs = padded_costs(cost_in_bytes(None), samples, np.array([0, 999]), most)
    assert costs / GIB == pytest.approx([n * published_gib(m) for n, m in zip(samples, most, strict=True)], rel=1e-6)
    assert "what BrainVLM published of its own" in caplog.text


def test_padded_units_count_an_image_as_tokens() -> None:
    longest, most = np.array([10, 10, 0]), np.array([0, 2, 0])
    assert padded_costs(PaddedUnits(64), np.array([3, 3, 3]), longest, most).tolist() == [30, 30 + 6 * 64, 3]
    with pytest.raises(InputError, match="-1 tokens"):
        PaddedUnits(-1)


class Knowing(PricedMib):
    """A predictor that knows what is held between steps."""

    held_bytes = 100 * MIB


def test_what_is_held_is_part_of_what_training_takes() -> None:
    one = np.ones(1, np.int64)
    assert cost_in_bytes(Knowing()).cost(one, 16 * one, one).tolist() == [109 * MIB]
    assert cost_in_bytes(PricedMib()).cost(one, 16 * one, one).tolist() == [9 * MIB]


@pytest.mark.parametrize(
    ("predictor", "words"),
    [
        ("T1", "predictor: str does not say"),
        (PricedMib, "the class PricedMib"),
        (TokenCost(), "in tokens"),
    ],
)
def test_what_does_not_price_in_bytes_is_refused(predictor: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        cost_in_bytes(predictor)
