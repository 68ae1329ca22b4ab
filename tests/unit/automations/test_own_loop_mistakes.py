"""What a loop of one's own gets wrong is answered in one sentence: what, and what to do."""

import logging
from typing import Any

import pytest

from trainauto.automations import DynamicBatchSizeOptimizer, TrainingAutomations
from trainauto.core.errors import InputError
from trainauto.core.records import PeakReading


class OnlyBatches:
    def update_batch_size(self, batch_size: int) -> None:
        self.batch_size = batch_size


class OnlyCrops:
    lq_size = 0

    def update_lq_size(self, lq_size: int) -> None:
        self.lq_size = lq_size


def refused(loader: Any, dataset: Any = None, **arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        DynamicBatchSizeOptimizer(**arguments).set_dynamic_wrappers(loader, dataset)
    return str(caught.value)


def test_a_loader_without_setters_is_refused_when_it_is_handed_over() -> None:
    text = refused([1, 2, 3])
    assert "the loader, a list, has no update_batch_size(n)" in text
    assert "or pass None, and apply what update_vram_monitoring() returns" in text
    text = refused(OnlyBatches())
    assert "neither the loader, a OnlyBatches, nor the dataset (NoneType) has update_lq_size(n)" in text
    refused(OnlyBatches(), object())


def test_what_is_enough_is_taken() -> None:
    dataset = OnlyCrops()
    automation = DynamicBatchSizeOptimizer()
    automation.set_dynamic_wrappers(OnlyBatches(), dataset)
    automation.set_current_parameters(4, 32)
    assert dataset.lq_size == 32
    fixed = DynamicBatchSizeOptimizer(min_lq_size=32, max_lq_size=32)
    fixed.set_dynamic_wrappers(loader := OnlyBatches(), object())
    fixed.set_current_parameters(4, 32)
    assert loader.batch_size == 4


def test_forgotten_parameters_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    automation = DynamicBatchSizeOptimizer()
    with caplog.at_level(logging.WARNING, "trainauto"):
        for _ in range(3):
            automation.observe(PeakReading(2**20, limit=2**30))
            assert automation.update_vram_monitoring() == (None, None)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "call set_current_parameters(batch_size=..., lq_size=...) before the first step" in warning


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_lqsize": 64}, ["has no argument 'max_lqsize'", "Did you mean 'max_lq_size'?"]),
        ({"target_vram_usage": 85}, ["target_vram_usage must lie in (0, 1], got 85; did you mean 0.85, 85 per cent?"]),
        ({"safety_margin": 5}, ["got 5; did you mean 0.05, 5 per cent?"]),
        ({"target_vram_usage": 850}, ["got 850\n"]),
        ({"min_lq_size": 64, "max_lq_size": 32}, ["max_lq_size 32 is below min_lq_size 64; were they meant the other"]),
        ({"max_batch_size": "many"}, ["DynamicBatchSizeOptimizer: ", "max_batch_size='many'"]),
    ],
)
def test_arguments(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        TrainingAutomations({"DynamicBatchSizeOptimizer": arguments})
    for word in words:
        assert word in str(caught.value)


def test_nothing_instead_of_arguments_and_sizes_without_units() -> None:
    with pytest.raises(InputError, match=r"for its defaults"):
        TrainingAutomations({"DynamicBatchSizeOptimizer": None})
    with pytest.raises(InputError, match="memory_budget '24' is no size"):
        TrainingAutomations({"DynamicBatchSizeOptimizer": {}}, memory_budget="24")
