"""Signals that end what nothing depends on."""

import signal

import pytest

from trainauto.engine.signals import StopSignals
from trainauto.tasks.sr.models.validation_group import StopHeard


def test_signal_that_came_before_raises_on_entry() -> None:
    signals = StopSignals()
    with signals:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StopHeard), signals.raising(StopHeard):
            pytest.fail("an image would run to its end")
    assert signals.exit_code == 143
