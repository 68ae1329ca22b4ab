"""Seconds of plans that were not timed."""

import json
from collections.abc import Callable
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainauto.control.step_speeds import StepSpeeds

DEVICES: dict[str, Callable[[int], float]] = {
    "busy at once": lambda work: 0.01 + 1e-3 * work,
    "busy from 40 on": lambda work: max(0.05, 1e-3 * work + 0.01),
    "never busy": lambda work: 0.05,
    "busy gradually": lambda work: (0.03**4 + (1e-3 * work) ** 4) ** 0.25,
}


@given(st.sampled_from(sorted(DEVICES)), st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(1, 400))
def test_bounds_hold_for_devices_that_become_busy(name: str, timed: list[int], work: int) -> None:
    device, speeds = DEVICES[name], StepSpeeds()
    for one in timed:
        speeds.observe(one, device(one))
    found = speeds.predict(work)
    assert found.least <= found.expected <= found.most
    assert found.least <= device(work) * (1 + 1e-9)
    assert device(work) <= found.most * (1 + 1e-9)


def test_plans_not_yet_timed_are_known_within_a_tenth() -> None:
    errors = []
    for device in DEVICES.values():
        speeds = StepSpeeds()
        for work in (16, 32, 64):
            speeds.observe(work, device(work))
        errors += [abs(speeds.predict(work).expected / device(work) - 1) for work in (20, 24, 40, 48, 80, 96, 128)]
    assert median(errors) < 0.1
    assert max(errors) < 0.35


def test_what_is_timed_again_is_taken_by_halves_and_kept() -> None:
    speeds = StepSpeeds()
    with pytest.raises(ValueError, match="no plan was timed"):
        speeds.predict(4)
    for seconds in (1.0, 4.0):
        speeds.observe(10, seconds)
    assert speeds.predict(10).expected == 2.0
    for work in range(20, 40):
        speeds.observe(work, 3.0)
    assert len(speeds.works) == 12
    again = StepSpeeds()
    again.load_state_dict(json.loads(json.dumps(speeds.state_dict())))
    assert again.predict(50) == speeds.predict(50)
