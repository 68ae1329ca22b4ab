"""What ends a run of fine-tuning before its length, and what is said of it (D36, D37, D44, D50)."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainauto.core.errors import NonFiniteError
from trainauto.tasks.finetune.endings import (
    STOP_FILE,
    Ending,
    MeasureAtTheEnd,
    StopAtFile,
    StopAtLowLoss,
    check_finite,
)


def control() -> SimpleNamespace:
    return SimpleNamespace(should_save=False, should_training_stop=False)


def test_a_run_that_nothing_ends_is_complete() -> None:
    end = Ending().as_run_end()
    assert (end.status, end.termination_status) == ("completed", "auto_complete")


def test_a_signal_is_an_interruption() -> None:
    ending = Ending()
    ending.interrupt("stopped by SIGINT")
    end = ending.as_run_end()
    assert (end.status, end.termination_status, end.reason) == ("interrupted", "interrupted", "stopped by SIGINT")


def test_a_file_ends_the_run_once(tmp_path: Path) -> None:
    """D50: after its step, with a checkpoint; the file is gone, so that a resume goes on."""
    ending, asked = Ending(), control()
    stop = StopAtFile(tmp_path, ending)
    stop.on_step_end(None, SimpleNamespace(global_step=1), asked)
    assert (asked.should_training_stop, ending.status) == (False, "completed")
    (tmp_path / STOP_FILE).touch()
    stop.on_step_end(None, SimpleNamespace(global_step=2), asked)
    assert asked.should_save
    assert asked.should_training_stop
    assert not (tmp_path / STOP_FILE).exists()
    end = ending.as_run_end()
    assert (end.status, end.termination_status) == ("stopped", "user_stop")
    assert end.reason == "STOP_TRAINING asked for it after step 2"


class Losses:
    """A Trainer whose steps have these losses."""

    def __init__(self, stop_at: float, patience: int) -> None:
        self.memory = SimpleNamespace(record=None)
        self.ending = Ending()
        self.stop = StopAtLowLoss(self, stop_at, patience, self.ending)

    def after(self, *losses: Any) -> int | None:
        """Return the number of the step that ends the run."""
        for number, loss in enumerate(losses, start=1):
            self.memory.record = SimpleNamespace(losses={"loss": loss})
            asked = control()
            self.stop.on_step_end(None, SimpleNamespace(global_step=number), asked)
            if asked.should_training_stop:
                assert asked.should_save
                return number
        return None


@pytest.mark.parametrize(
    ("losses", "ends"),
    [
        ((0.5, 0.5, 0.5), 3),
        ((0.4, 0.4, 0.6, 0.4, 0.4, 0.4), 6),
        ((0.4, 0.4, math.nan, 0.4, 0.4), None),
        ((0.51, 0.51, 0.51, 0.51), None),
    ],
)
def test_a_low_loss_ends_the_run_after_steps_one_after_another(losses: tuple[float, ...], ends: int | None) -> None:
    """D36, D37: a step above it begins the count anew."""
    trainer = Losses(0.5, 3)
    assert trainer.after(*losses) == ends
    if ends is not None:
        end = trainer.ending.as_run_end()
        assert (end.status, end.termination_status) == ("stopped", "auto_low_loss")
        assert end.reason == f"the loss was at most 0.5 for 3 steps, up to step {ends}"


def test_a_resume_goes_on_counting() -> None:
    trainer, resumed = Losses(0.5, 3), Losses(0.5, 3)
    trainer.after(0.4, 0.4)
    resumed.stop.low_steps = trainer.stop.low_steps
    assert resumed.after(0.4) == 1


@pytest.mark.parametrize(
    ("stops", "complete", "trained", "measures"),
    [
        (False, False, 4, False),
        (True, False, 4, True),
        (False, True, 4, True),
        (False, True, 0, False),
    ],
)
def test_a_run_measures_where_it_ends(*, stops: bool, complete: bool, trained: int, measures: bool) -> None:
    """Within an epoch, and where epochs are not measured; a resume with nothing left to train has done so before."""
    trainer = SimpleNamespace(memory=SimpleNamespace(is_complete=complete, trained_samples=trained))
    control = SimpleNamespace(should_training_stop=stops, should_evaluate=False)
    MeasureAtTheEnd(trainer).on_epoch_end(None, None, control)
    assert control.should_evaluate is measures


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused_with_what_helps(value: float) -> None:
    """D44: a tenth of the rate, and a longer warm-up."""
    with pytest.raises(NonFiniteError, match=f"the loss of step 7 is {value}") as caught:
        check_finite(value, "the loss", 7, 5e-5)
    assert "learning_rate: 5e-06, warmup_ratio: 0.2" in str(caught.value)
    check_finite(1e30, "the loss", 7, 5e-5)
