"""The sinks that every run has."""

from typing import TextIO

from trainauto.reporting.console import console_sink
from trainauto.reporting.dashboard.dashboard_sink import Dashboard
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.sinks import Sink
from trainauto.reporting.summary_json import SummaryJson
from trainauto.reporting.tensorboard import TensorBoard
from trainauto.reporting.text_log import TrainingLog
from trainauto.storage.run_directory import RunDirectory


def default_sinks(
    run: RunDirectory,
    print_freq: int,
    *,
    tensorboard: bool = True,
    console: bool = True,
    curves_every: int = 1,
    stream: TextIO | None = None,
) -> list[Sink]:
    """Return the sinks of a run, for the :class:`~trainauto.reporting.reporter.Reporter` of its first rank.

    The records come first: they are the truth, and what they hold needs no other sink.

    Args:
        run: the run's folder.
        print_freq: steps between logging steps.
        tensorboard: whether to write curves.
        console: whether there is one.
        curves_every: steps between points of curves.
        stream: where the console is; stdout if not given.
    """
    return [
        JsonLines(run),
        SummaryJson(run.log_object, print_freq),
        TrainingLog(run.log, print_freq),
        Dashboard(run),
        *([console_sink(print_freq, stream)] if console else []),
        *([TensorBoard(run.tensorboard, curves_every)] if tensorboard else []),
    ]
