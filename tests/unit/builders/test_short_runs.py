"""A run that is too short for its moving average is told so, with the decay that would suit it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import tiny_options, write_options
from trainauto.builders.schedules import warn_of_short_run
from trainauto.options.load import load_options


def said(folder: Path, caplog: pytest.LogCaptureFixture, **train: Any) -> str:
    caplog.clear()
    warn_of_short_run(load_options(write_options(folder / "run.yml", tiny_options(folder, train=train))).options)
    return " ".join(caplog.messages)


def test_the_share_of_the_first_weights_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = said(tmp_path, caplog, total_iter=200)
    assert "ema_decay 0.999 averages weights over about 1000 steps, and this run has 200: " in text
    assert "are still 82 % the initial ones. `ema_decay: 0.97" in text


@pytest.mark.parametrize("steps", [5, 60, 200, 2000])
def test_what_is_suggested_is_not_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture, steps: int) -> None:
    found = re.search(r"`ema_decay: (\S+)`", said(tmp_path, caplog, total_iter=steps))
    assert found is not None
    assert said(tmp_path, caplog, total_iter=steps, ema_decay=float(found[1])) == ""


def test_long_runs_and_runs_without_an_average(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert said(tmp_path, caplog, total_iter=100_000) == ""
    assert said(tmp_path, caplog, total_iter=10, ema_decay=0.0) == ""
    assert said(tmp_path, caplog, total_iter=None, total_samples=400_000) == ""
    assert "this run has 100: " in said(tmp_path, caplog, total_iter=None, total_samples=400)
