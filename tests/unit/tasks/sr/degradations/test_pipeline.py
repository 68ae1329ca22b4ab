"""The order of operations, and that a seed decides all of it."""

from dataclasses import replace

import numpy as np
import pytest

from tests.acceptance import ACCEPTANCE
from tests.unit.tasks.sr.degradations.settings import SETTINGS, STAGE
from trainauto.tasks.sr.degradations import Drawn, degrade, generator_of

DRAWS = 10_000 if ACCEPTANCE else 200


def run(seed: int, side: int = 64) -> tuple[np.ndarray, list[Drawn]]:
    image = generator_of(1).random((side, side, 3), np.float32)
    return degrade(image, SETTINGS, generator_of(seed), side // 4, side // 4)


def test_a_seed_decides_everything() -> None:
    for seed in range(20):
        one, other = run(seed), run(seed)
        assert one[1] == other[1]
        assert np.array_equal(one[0], other[0])
        assert one[0].shape == (16, 16, 3)
        assert one[0].dtype == np.float32
        assert one[0].min() >= 0
        assert one[0].max() <= 1
    assert len({run(seed)[0].tobytes() for seed in range(20)}) == 20


def test_steps_come_in_order_as_often_as_asked() -> None:
    orders = [[step.step for step in run(seed, 32)[1]] for seed in range(DRAWS)]
    for order in orders:
        assert order[:4] == ["blur", "resize", "noise", "compression"]
        rest = order[5:] if order[4] == "blur" else order[4:]
        assert rest[:2] == ["resize", "noise"]
        assert rest[2:] in (
            ["final resize", "compression"],
            ["final resize", "final sinc", "compression"],
            ["compression", "final resize"],
            ["compression", "final resize", "final sinc"],
        )
    error = 4 * 0.5 / DRAWS**0.5
    assert np.mean([order.count("blur") == 2 for order in orders]) == pytest.approx(0.8, abs=error)
    assert np.mean(["final sinc" in order for order in orders]) == pytest.approx(0.8, abs=error)
    assert np.mean([order[-1] == "compression" for order in orders]) == pytest.approx(0.5, abs=error)


def test_what_is_drawn_keeps_to_its_ranges() -> None:
    steps = [step for seed in range(DRAWS) for step in run(seed, 32)[1]]
    values = {name: [step.values for step in steps if step.step == name] for name in ("noise", "compression", "blur")}
    qualities = [value["quality"] for value in values["compression"]]
    assert min(qualities) >= 30
    assert max(qualities) <= 95
    error = 4 * 0.5 / (2 * DRAWS) ** 0.5
    assert np.mean([value["kind"] == "gaussian" for value in values["noise"]]) == pytest.approx(0.5, abs=error)
    assert np.mean([value["gray"] for value in values["noise"]]) == pytest.approx(0.4, abs=error)
    assert np.mean([value["kernel"] == "sinc" for value in values["blur"]]) == pytest.approx(0.1, abs=error)


def test_no_gaussian_noise_is_poisson_noise_and_no_strength_is_none() -> None:
    poisson = replace(SETTINGS, first=replace(STAGE, gaussian_prob=0), second=replace(STAGE, gaussian_prob=0))
    silent = replace(poisson, first=replace(STAGE, gaussian_prob=0, poisson_scale_range=(0, 0)))
    image = generator_of(1).random((32, 32, 3), np.float32)
    for seed in range(10):
        drawn = degrade(image, poisson, generator_of(seed), 8, 8)[1]
        assert [step.values["kind"] for step in drawn if step.step == "noise"] == ["poisson"] * 2
        assert [step.step for step in degrade(image, silent, generator_of(seed), 8, 8)[1]].count("noise") == 1
