"""Clipping at a percentile of the norms of each optimizer."""

import random

import pytest

from tests.unit.automations.watched import decided, step_of
from trainauto.automations.gradient_clipping import AdaptiveGradientClipping as Clipping
from trainauto.core.decisions import ClipAt, RunFacts
from trainauto.core.plan import Plan


def norms_of(scale: float, count: int, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [scale * draw.lognormvariate(0, 0.3) for _ in range(count)]


def clipped(clipping: Clipping, norms: list[float], *, first: int = 1, name: str = "g") -> dict[int, ClipAt]:
    steps = [step_of(step, 1.0, norms={name: norm}) for step, norm in enumerate(norms, first)]
    return {step: one for step, one in decided(clipping, steps).items() if isinstance(one, ClipAt)}


def test_nothing_is_clipped_before_there_are_enough_norms_and_then_at_their_percentile() -> None:
    norms = norms_of(2.0, 100)
    decisions = clipped(Clipping(), norms)
    assert list(decisions) == [100]
    below = sum(norm <= decisions[100].max_norm for norm in norms)  # type: ignore[operator]
    assert below in (90, 91)
    assert decisions[100].pass_name == "g"
    assert decisions[100].reason.startswith("percentile 90 of the last 100 norms is ")


def test_it_follows_norms_that_fall_and_says_so_only_where_they_have_moved() -> None:
    decisions = clipped(Clipping(history_size=200), norms_of(2.0, 500) + norms_of(0.2, 500, seed=1))
    assert [step for step in decisions if 100 < step <= 500] == []
    last = list(decisions.values())[-1].max_norm
    assert last == pytest.approx(0.2 * 1.47, rel=0.15), "e ** (0.3 * 1.28) is the 90th percentile of such norms"


def test_spikes_do_not_raise_it() -> None:
    """One step in fifty at a thousand times the norm."""
    norms = [1000.0 if step % 50 == 7 else norm for step, norm in enumerate(norms_of(1.0, 2000))]
    assert all(one.max_norm < 2 for one in clipped(Clipping(), norms).values())  # type: ignore[operator]


def test_each_optimizer_has_a_history_of_its_own() -> None:
    clipping = Clipping()
    steps = [
        step_of(step, 1.0, norms={"g": large, "d": small})
        for step, (large, small) in enumerate(zip(norms_of(10.0, 150), norms_of(0.1, 150), strict=True), 1)
    ]
    found = {one.pass_name: (step, one.max_norm) for step, one in decided(clipping, steps).items()}  # type: ignore[union-attr]
    assert set(found) == {"g", "d"}
    assert found["g"][1] > 10 > 0.2 > found["d"][1]
    assert {found["g"][0], found["d"][0]} == {100, 101}, "one decision a step"


def test_what_the_run_clips_at_by_itself_stays_the_most() -> None:
    clipping = Clipping()
    clipping.on_run_start(RunFacts((), Plan.of(batch_size=1), max_norm=1.0))
    (only,) = clipped(clipping, norms_of(50.0, 300)).values()
    assert only.max_norm == 1.0
    assert "and the run clips at less by itself" in only.reason


def test_norms_that_are_none_are_left_out() -> None:
    clipping = Clipping(warmup_steps=2, history_size=4)
    assert clipping.on_step_end(step_of(1, 1.0, norms={"g": float("inf")})) is None
    assert clipping.on_step_end(step_of(2, 1.0, norms={"g": 1e30}, skipped=("g",))) is None
    assert clipping.on_step_end(step_of(3, 1.0, norms={"g": 0.0})) is None
    assert clipping.on_step_end(step_of(4, 1.0, norms={"g": 0.0})) is None, "all gradients are 0"


def test_arguments_that_cannot_be() -> None:
    for arguments, words in (
        ({"percentile": 0.0}, "percentile must be above 0"),
        ({"percentile": 101.0}, "percentile must be above 0"),
        ({"warmup_steps": 0}, "warmup_steps must be 1"),
        ({"warmup_steps": 20, "history_size": 10}, "warmup_steps must be 1 or more and at most history_size"),
    ):
        with pytest.raises(ValueError, match=words):
            Clipping(**arguments)
