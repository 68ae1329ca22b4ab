"""What decisions set, and what of it a resume takes up."""

from typing import Any

import pytest

from trainauto.core.decisions import USER_STOP, ClipAt, RateFactor, Stop
from trainauto.core.plan import Plan
from trainauto.engine.controls import Controls


class Loader:
    """Has a plan."""

    plan = Plan.of(batch_size=2)


def controls(max_norm: float | None = 5.0) -> Controls:
    loader: Any = Loader()
    return Controls(loader, max_norm)


def resumed(given: Controls, max_norm: float | None = 5.0) -> Controls:
    other = controls(max_norm)
    other.load_state_dict(given.state_dict())
    return other


def test_each_pass_has_a_norm_of_its_own_until_one_is_decided_for_all() -> None:
    given = controls()
    given.apply([ClipAt(2.0, "spikes", pass_name="g"), ClipAt(None, "calm", pass_name="d")])
    for one in (given, resumed(given)):
        assert [one.max_norm_of(name) for name in ("g", "d", "another")] == [2.0, None, 5.0]
    given.apply([ClipAt(1.0, "for all")])
    for one in (given, resumed(given)):
        assert [one.max_norm_of(name) for name in ("g", "d", "another")] == [1.0, 1.0, 1.0]
    assert given.given_norm == 5.0


@pytest.mark.parametrize(("termination", "kept"), [(USER_STOP, ""), ("auto_no_improvement", "why"), ("", "why")])
def test_a_stop_that_a_person_asked_for_ends_no_resume(termination: str, kept: str) -> None:
    given = controls()
    given.apply([RateFactor(0.5, "why"), Stop("why", termination=termination)])
    assert (given.stop_reason, given.termination) == ("why", termination)
    assert resumed(given).stop_reason == kept
    assert resumed(given).rate_factor == 0.5


def test_what_ended_a_run_is_known_after_a_resume() -> None:
    given = controls()
    given.apply([Stop("low", termination="auto_low_loss")])
    assert resumed(given).termination == "auto_low_loss"
    given.apply([Stop("asked", termination=USER_STOP)])
    assert resumed(given).termination == ""


def test_what_an_automation_decided_ends_with_it_and_nothing_else_does() -> None:
    given = controls()
    given.apply([RateFactor(0.25, "stands still", by="Rates"), ClipAt(2.0, "spikes", pass_name="g", by="Clips")])
    given.apply([ClipAt(1.0, "by hand", pass_name="d")])
    without_rates, without_clips = resumed(given), resumed(given)
    assert given.deciders() == {"Rates", "Clips"}
    assert [(type(one), one.reason) for one in without_rates.undo("Rates")] == [
        (RateFactor, "Rates, which had decided otherwise, is gone")
    ]
    assert (without_rates.rate_factor, without_rates.max_norm_of("g")) == (1.0, 2.0)
    assert without_rates.deciders() == {"Clips"}
    (undone,) = without_clips.undo("Clips")
    assert undone == ClipAt(5.0, "Clips, which had decided otherwise, is gone", early=True, pass_name="g")
    assert [without_clips.max_norm_of(name) for name in ("g", "d")] == [5.0, 1.0]
    assert without_clips.rate_factor == 0.25
    assert without_clips.is_norm_decided("d")
    assert not without_clips.is_norm_decided("g")


def test_a_norm_for_all_passes_ends_with_who_decided_it() -> None:
    given = controls()
    given.apply([ClipAt(2.0, "spikes", pass_name="g", by="Clips"), ClipAt(1.0, "for all", by="Other")])
    assert given.deciders() == {"Other"}
    assert given.undo("Clips") == []
    assert given.undo("Other") == [ClipAt(5.0, "Other, which had decided otherwise, is gone", early=True)]
    assert given.max_norm_of("g") == 5.0
    assert not given.is_norm_decided("g")
    given.apply([RateFactor(0.5, "first", by="Rates"), RateFactor(0.25, "then", by="Others")])
    assert given.undo("Rates") == [], "another one decided since"
    assert given.rate_factor == 0.25


@pytest.mark.parametrize(
    ("decided", "now", "then"),
    [(2.0, 1.0, 1.0), (2.0, 3.0, 2.0), (2.0, 9.0, 2.0), (None, 1.0, 1.0), (None, 5.0, None), (2.0, None, 2.0)],
)
def test_a_run_that_clips_at_less_by_itself_than_before_clips_at_no_more(
    decided: float | None, now: float | None, then: float | None
) -> None:
    """It clipped at 5 before."""
    given = controls()
    given.apply([ClipAt(decided, "decided", pass_name="g")])
    assert resumed(given, now).max_norm_of("g") == then
    given.apply([ClipAt(decided, "decided")])
    assert resumed(given, now).max_norm_of("other") == then
