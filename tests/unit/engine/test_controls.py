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


def resumed(given: Controls) -> Controls:
    other = controls()
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
