"""Lines that a Trainer's run writes on the console."""

from types import SimpleNamespace

from trainauto.builders.trainer_lines import ConsoleLines, StopOnSignal, line_of
from trainauto.engine.signals import StopSignals

LOGS = {
    "loss": 2.34567,
    "learning_rate": 0.00123,
    "step_samples": 64,
    "forward_batch_size": 16,
    "peak_memory_mib": 52.4,
}


def test_a_line_says_what_a_step_was() -> None:
    line = line_of(50, 600, LOGS, {"T1": 0.5, "T2": 1.25})
    assert line == "50/600  loss 2.346 (T1 0.5, T2 1.25)  lr 0.00123  64 samples in passes of 16  mem 52 MiB"


def test_what_is_not_known_is_left_out() -> None:
    assert line_of(1, 2, {"loss": "0.5"}, {}) == "1/2  loss 0.5"
    assert line_of(1, 2, {"loss": 0.5, "step_samples": 8}, {}) == "1/2  loss 0.5  8 samples"
    one_pass = {"loss": 0.5, "step_samples": 3, "forward_batch_size": 4}
    assert line_of(1, 2, one_pass, {}) == "1/2  loss 0.5  3 samples"


def test_logs_of_steps_and_of_what_was_measured_are_written() -> None:
    lines: list[str] = []
    console = ConsoleLines(["T1", "T2"], lines.append)
    state = SimpleNamespace(global_step=3, max_steps=9)
    for logs in (None, {"eval_loss": 1.0}, {"train_runtime": 3.0}, {"loss": 2.0, "loss_T1": 1.0}):
        console.on_log(None, state, None, logs)
    assert lines == ["3/9  measured: loss 1", "3/9  loss 2 (T1 1)"]


def test_a_signal_ends_the_run_after_its_step_with_a_checkpoint() -> None:
    signals, control = StopSignals(), SimpleNamespace(should_save=False, should_training_stop=False)
    StopOnSignal(signals).on_step_end(None, None, control)
    assert not control.should_training_stop
    signals.received = 2
    StopOnSignal(signals).on_step_end(None, None, control)
    assert control.should_save
    assert control.should_training_stop


def test_a_run_that_a_signal_ends_measures_no_more() -> None:
    """The person waits for it to leave; a resume measures at the end of its epoch."""
    signals, control = StopSignals(), SimpleNamespace(should_evaluate=True)
    StopOnSignal(signals).on_epoch_end(None, None, control)
    assert control.should_evaluate
    signals.received = 2
    StopOnSignal(signals).on_epoch_end(None, None, control)
    assert not control.should_evaluate
