"""A file that ends a run."""

import errno
import logging
from pathlib import Path

import pytest

from tests.unit.automations.watched import step_of
from trainauto.automations.stop_file import STOP_FILE, StopFile
from trainauto.core.decisions import USER_STOP, RunFacts, Stop
from trainauto.core.plan import Plan

PLAN = Plan.of(batch_size=1)


def test_it_ends_the_run_once_and_is_removed(tmp_path: Path) -> None:
    stop_file = StopFile()
    stop_file.on_run_start(RunFacts((), PLAN, folder=str(tmp_path)))
    assert stop_file.on_step_end(step_of(1, 1.0)) is None
    (tmp_path / STOP_FILE).touch()
    expected = Stop("STOP_TRAINING requested it after step 2", termination=USER_STOP)
    assert stop_file.on_step_end(step_of(2, 1.0)) == expected
    assert not (tmp_path / STOP_FILE).exists()
    assert stop_file.on_step_end(step_of(3, 1.0)) is None


def test_a_file_that_cannot_be_removed_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder of that name stands for one: nothing is deleted with what is in it."""
    stop_file = StopFile()
    stop_file.on_run_start(RunFacts((), PLAN, folder=str(tmp_path)))
    (tmp_path / STOP_FILE).mkdir()
    with caplog.at_level(logging.WARNING):
        assert isinstance(stop_file.on_step_end(step_of(1, 1.0)), Stop)
    assert "cannot be removed" in caplog.text


def test_without_a_folder_it_says_that_nothing_will_stop_it(caplog: pytest.LogCaptureFixture) -> None:
    stop_file = StopFile()
    with caplog.at_level(logging.WARNING):
        stop_file.on_run_start(RunFacts((), PLAN))
    assert stop_file.on_step_end(step_of(1, 1.0)) is None
    assert "no file can stop it" in caplog.text


def test_a_drive_that_is_away_for_a_moment_ends_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_file = StopFile()
    stop_file.on_run_start(RunFacts((), PLAN, folder=str(tmp_path)))

    def stale(_path: Path) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as away, caplog.at_level(logging.WARNING):
        away.setattr(Path, "exists", stale)
        assert [stop_file.on_step_end(step_of(step, 1.0)) for step in (1, 2)] == [None, None]
    assert caplog.text.count("Stale file handle") == 1
    (tmp_path / STOP_FILE).touch()
    assert isinstance(stop_file.on_step_end(step_of(3, 1.0)), Stop)
