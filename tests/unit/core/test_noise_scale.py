"""The gradient noise scale against its closed form."""

import json
import math

import numpy as np
import pytest

from trainauto.core.noise_scale import NoiseSample, NoiseScale, worth

DIMENSIONS = 40


def sampled(generator: np.random.Generator, mean: np.ndarray, spread: float, sizes: list[int]) -> NoiseSample:
    """Return what a step says whose samples' gradients are drawn around a mean."""
    parts = [generator.normal(mean, spread, (size, len(mean))).mean(axis=0) for size in sizes]
    shares = np.array(sizes) / sum(sizes)
    whole = sum(share * part for share, part in zip(shares, parts, strict=True))
    parts_square = sum(share * float(part @ part) for share, part in zip(shares, parts, strict=True))
    return NoiseSample(parts_square, float(whole @ whole), len(sizes), sum(sizes))


@pytest.mark.parametrize("sizes", [[4, 4], [2, 2, 2, 2], [5, 3], [7, 1, 4], [1] * 8])
def test_both_estimates_are_unbiased_whatever_the_parts(sizes: list[int]) -> None:
    generator = np.random.default_rng(1)
    mean = generator.normal(0, 0.3, DIMENSIONS)
    samples = [sampled(generator, mean, 0.5, sizes) for _ in range(4000)]
    assert np.mean([one.trace for one in samples]) == pytest.approx(0.25 * DIMENSIONS, rel=0.03)
    assert np.mean([one.mean_square for one in samples]) == pytest.approx(float(mean @ mean), rel=0.03)


def test_the_scale_follows_and_its_bound_lies_below_it_mostly() -> None:
    generator = np.random.default_rng(2)
    mean = generator.normal(0, 0.3, DIMENSIONS)
    truth = 0.25 * DIMENSIONS / float(mean @ mean)
    below = []
    for _ in range(40):
        scale = NoiseScale()
        for _ in range(60):
            scale.add(sampled(generator, mean, 0.5, [4, 4]))
        assert scale.value == pytest.approx(truth, rel=0.35)
        assert 0 < scale.least < (scale.value or 0)
        below.append(scale.least < truth)
    assert np.mean(below) > 0.8
    again = NoiseScale.from_state(json.loads(json.dumps(scale.state_dict())))
    again.add(one := sampled(generator, mean, 0.5, [4, 4]))
    scale.add(one)
    assert (again.value, again.least, again.samples) == (scale.value, scale.least, scale.samples)


def test_large_gradients_of_the_first_steps_do_not_rule_for_long() -> None:
    scale = NoiseScale()
    for size in [30.0] * 4 + [1.0] * 60:
        scale.add(NoiseSample(parts_square=1.5 * size if size > 1 else 1.125, square=size, parts=2, amount=8))
    assert scale.value == pytest.approx(8 * 0.125 / (1 - 0.125), rel=0.3)


def test_where_no_mean_can_be_told_the_scale_has_no_end() -> None:
    scale = NoiseScale()
    assert (scale.value, scale.least) == (None, 0.0)
    for square in (1.0, 1.1):
        scale.add(NoiseSample(2.0 * square, square, 2, 8))
    assert scale.value == math.inf
    for useless in (NoiseSample(1.0, 1.0, 1, 8), NoiseSample(math.nan, 1.0, 2, 8), NoiseSample(1.0, math.inf, 2, 8)):
        scale.add(useless)
    assert scale.samples == 2


def test_ranks_say_together_what_one_process_would() -> None:
    generator = np.random.default_rng(3)
    mean = np.ones(DIMENSIONS)
    whole = sampled(generator, mean, 1.0, [3, 3, 2])
    first, second = NoiseSample(1.25, whole.square, 2, 6), NoiseSample(whole.parts_square - 1.25, whole.square, 1, 2)
    assert first.joined(second) == whole


def test_a_batch_of_12_is_worth_9_of_4() -> None:
    assert 12 * worth(12, noise=20, base=4) == 9
    assert worth(4, noise=0.1, base=4) == 1
    assert worth(10**6, noise=math.inf, base=4) == 1
