"""What ends a run of fine-tuning before its length, and what is said of it (D36, D37, D44, D50)."""

import math
from types import SimpleNamespace

import pytest

from trainauto.core.errors import NonFiniteError
from trainauto.tasks.finetune.endings import (
    Ending,
    MeasureAtTheEnd,
    check_finite,
)


def test_a_run_that_nothing_ends_is_complete() -> None:
    end = Ending().as_run_end()
    assert (end.status, end.termination_status) == ("completed", "auto_complete")


def test_a_signal_is_an_interruption() -> None:
    ending = Ending()
    ending.interrupt("stopped by SIGINT")
    end = ending.as_run_end()
    assert (end.status, end.termination_status, end.reason) == ("interrupted", "interrupted", "stopped by SIGINT")


def test_an_automation_ends_a_run_where_no_signal_has() -> None:
    ending = Ending()
    ending.stop("STOP_TRAINING asked for it after step 2", "user_stop")
    end = ending.as_run_end()
    assert (end.status, end.termination_status) == ("stopped", "user_stop")
    assert end.reason == "STOP_TRAINING asked for it after step 2"
    interrupted = Ending()
    interrupted.interrupt("stopped by SIGINT")
    interrupted.stop("the loss is low", "auto_low_loss")
    assert interrupted.as_run_end().reason == "stopped by SIGINT"


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
