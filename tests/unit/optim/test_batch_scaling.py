"""Rates and averages of steps of another size than the configured one."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.test_step import batch_of, model_of, step
from trainauto.engine.step import StepSettings
from trainauto.optim.batch_scaling import BatchScaling
from trainauto.optim.ema import Ema

DECAY = 0.9


@pytest.mark.parametrize(
    ("rule", "samples", "factor", "share"),
    [
        ("none", 32, 1.0, 1.0),
        ("none", 1, 1.0, 1.0),
        ("linear", 8, 1.0, 1.0),
        ("linear", 32, 4.0, 4.0),
        ("linear", 2, 0.25, 0.25),
        ("sqrt", 8, 1.0, 1.0),
        ("sqrt", 32, 2.0, 4.0),
        ("sqrt", 2, 0.5, 0.25),
    ],
)
def test_exact_figures(rule: str, samples: int, factor: float, share: float) -> None:
    scaling = BatchScaling(rule, configured_samples=8)
    assert (scaling.rate_factor(samples), scaling.average_share(samples)) == (factor, share)
    bounded = BatchScaling(rule, 8, most=2.0)
    assert bounded.rate_factor(samples) == min(factor, BatchScaling(rule, 8).rate_factor(16))
    assert bounded.average_share(samples) == share


@given(st.lists(st.integers(1, 64), min_size=1, max_size=20), st.integers(1, 64), st.sampled_from(["linear", "sqrt"]))
def test_the_horizon_of_an_average_is_the_same_in_samples(sizes: list[int], configured: int, rule: str) -> None:
    """Whatever pieces samples come in, they leave the same of what was averaged before."""
    scaling = BatchScaling(rule, configured)
    kept = 1.0
    for samples in sizes:
        kept *= DECAY ** scaling.average_share(samples)
    assert kept == pytest.approx(DECAY ** (sum(sizes) / configured))


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="none, sqrt, linear"):
        BatchScaling("cubic")
    with pytest.raises(ValueError, match="at least 1"):
        BatchScaling("linear", 0)


def test_averages_equal_those_of_a_plain_loop() -> None:
    """Through the engine's own step, over batches of several sizes."""
    model, scaling = model_of(), BatchScaling("sqrt", configured_samples=4)
    network = model.networks["net_g"]
    model.averages["net_g"] = Ema(network, DECAY)
    want = copy.deepcopy(list(network.parameters()))
    for seed, samples in enumerate((4, 12, 1, 4)):
        step(model, batch_of(samples, seed=seed), StepSettings(average_share=scaling.average_share(samples)))
        decay = DECAY ** (samples / 4)
        want = [
            decay * average + (1 - decay) * weight for average, weight in zip(want, network.parameters(), strict=True)
        ]
    found = list(model.averages["net_g"].network.parameters())
    torch.testing.assert_close(found, want, rtol=1e-6, atol=1e-7)
