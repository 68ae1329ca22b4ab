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


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows knows no SIGHUP")
def test_a_hangup_that_was_ignored_before_stays_so() -> None:
    """As nohup has it: the terminal closes, and the run goes on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGHUP)
            assert not signals.received
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGHUP)
        assert signals.exit_code == 129
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
