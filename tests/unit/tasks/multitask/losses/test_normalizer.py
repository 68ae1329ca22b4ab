"""Steps that stay what they are, however they are computed."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.losses.normalizer import (
    EffectiveBatchSizeNormalizer,
    accumulation_steps,
    scaled_rate,
    share_of_step,
)


def gradient_of(parts: Sequence[int], weights: Sequence[float], x: Tensor, y: Tensor) -> Tensor:
    """The gradient that a step accumulates over parts, each part's mean loss times its weight."""
    slope = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    start = 0
    for part, weight in zip(parts, weights, strict=True):
        rows = slice(start, start + part)
        ((x[rows] @ slope - y[rows]).square().mean() * weight).backward()
        start += part
    assert slope.grad is not None
    return slope.grad


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_parts_of_any_sizes_add_up_to_the_whole_step(parts: list[int]) -> None:
    """A50: n_i / N. The source's rules give other gradients wherever parts differ, or are not the base."""
    whole = sum(parts)
    generator = torch.Generator().manual_seed(whole)
    x = torch.randn(whole, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(whole, generator=generator, dtype=torch.float64)
    normalizer = EffectiveBatchSizeNormalizer(1, 64, 1e-3)
    expected = gradient_of([whole], [1.0], x, y)
    torch.testing.assert_close(gradient_of(parts, normalizer.weights(parts), x, y), expected)
    assert math.fsum(normalizer.weights(parts)) == pytest.approx(1)


def test_the_rules_of_the_source_give_other_steps() -> None:
    """A50: base / current, and target / (current * passes), on a step of 12 samples in parts of 5, 5 and 2."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(12, generator=generator, dtype=torch.float64)
    parts, base, target = (5, 5, 2), 4, 12
    expected = gradient_of([12], [1.0], x, y)

    def error(weights: Sequence[float]) -> float:
        return float((gradient_of(parts, weights, x, y) - expected).norm() / expected.norm())

    gradient_scale = [base / part / 3 for part in parts]
    loss_scale = [target / (part * 3) / 3 for part in parts]
    assert min(error(gradient_scale), error(loss_scale), error([1 / 3] * 3)) > 0.05
    assert error([share_of_step(part, 12) for part in parts]) < 1e-12


def test_the_rate_follows_the_step_and_not_its_passes() -> None:
    """A50: the source scaled it by the samples of a pass, so that it fell whenever memory divided a step further."""
    normalizer = EffectiveBatchSizeNormalizer(16, 32, 1e-3)

    def of_the_source(forward: int) -> float:
        return 1e-3 * math.sqrt(forward / 16)

    rates = {normalizer.learning_rate(forward * passes) for forward, passes in ((16, 2), (8, 4), (4, 8), (32, 1))}
    assert rates == {1e-3}
    assert of_the_source(4) == 0.5e-3
    assert normalizer.learning_rate(128) == pytest.approx(2e-3)
    assert normalizer.rate_factor(8) == pytest.approx(0.5)
    assert scaled_rate(1e-3, 64, 16) == pytest.approx(2e-3)
    assert EffectiveBatchSizeNormalizer(4, 64, 1.0, reference_batch_size=4).learning_rate(16) == pytest.approx(2)


@given(st.integers(1, 300), st.integers(1, 300))
def test_passes_are_rounded_up(target: int, forward: int) -> None:
    """A53: rounded down, a step trained fewer samples than the target in each case where it is no multiple."""
    passes = accumulation_steps(target, forward)
    assert passes * forward >= target > (passes - 1) * forward
    of_the_source = max(1, target // forward)
    assert (of_the_source * forward < target) == (passes != of_the_source)


def test_passes_follow_memory_as_it_is() -> None:
    """A53: 12 of 32 samples fit: three passes; the source's two train 24."""
    normalizer = EffectiveBatchSizeNormalizer(16, 32, 1e-3)
    assert [normalizer.accumulation_steps(forward) for forward in (32, 16, 12, 1)] == [1, 2, 3, 32]
    assert normalizer.accumulation_steps() == 2
    assert 32 // 12 * 12 < 32


@pytest.mark.parametrize("given_sizes", [(0, 32, 1e-3), (16, 8, 1e-3), (16, 32, 0.0)])
def test_what_cannot_be_a_step_is_refused(given_sizes: tuple[int, int, float]) -> None:
    with pytest.raises(InputError):
        EffectiveBatchSizeNormalizer(*given_sizes)
    with pytest.raises(ValueError, match="at least 1"):
        accumulation_steps(0, 4)
