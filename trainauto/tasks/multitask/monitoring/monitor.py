"""The monitor of a training on several tasks: what each batch and epoch was, as files, curves and a report."""

import gc
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.process import without_memory_limit
from trainauto.reporting.event_file import EventFile
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics, EpochMetrics
from trainauto.tasks.multitask.monitoring.metrics_board import MetricsBoard
from trainauto.tasks.multitask.monitoring.metrics_files import FOLDER, MetricsFiles
from trainauto.tasks.multitask.monitoring.metrics_history import MetricsHistory, ReadBack
from trainauto.tasks.multitask.monitoring.training_report import report_of

logger = logging.getLogger(__name__)

LEAST_GROWTH = 0.01
"""Share by which a long run grows before arrays and pictures are made anew: all of them together stay cheap."""


class DynamicBatchingMonitor:
    """Notes each batch and epoch of a training in ``<output_dir>/training_metrics/``.

    ``batch_metrics.jsonl`` and ``epoch_metrics.jsonl``, one line each, are appended at once and are the truth.
    ``batch_metrics.json`` and ``epoch_metrics.json`` hold the same as arrays, ``training_curves.png`` shows it; these
    are refreshed now and then and at the end, each whole or not at all. ``tensorboard/`` has the same figures, unless a
    run that writes event files takes them (:meth:`share_curves`).

    The first batch or epoch begins a run: what an earlier run has left there is moved aside. A run that is resumed
    calls :meth:`resume` before. No failure to write or to draw ends a training: it is logged, once.

    Args:
        output_dir: folder that ``training_metrics/`` is made in; one of that name is taken itself.
        save_interval: batches between refreshed arrays; past 100 times as many, whenever the run has grown by 1 %.
        plot_interval: batches between pictures, likewise.
        tensorboard: whether to write TensorBoard's event files.
        clock: returns seconds, for the time of epochs.

    Attributes:
        epoch_metrics: the epochs that have ended.

    Raises:
        InputError: an interval is below 1.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] = f"./{FOLDER}",
        save_interval: int = 100,
        plot_interval: int = 500,
        *,
        tensorboard: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, interval in (("save_interval", save_interval), ("plot_interval", plot_interval)):
            if interval < 1:
                raise InputError(f"{name} counts batches, 1 or more, got {interval}")
        self._files = MetricsFiles(Path(output_dir))
        self._board = MetricsBoard(self._files.board) if tensorboard else None
        self._intervals = {self._refresh: save_interval, self._draw_curves: plot_interval}
        self._clock = clock
        self._warned: set[str] = set()
        self._has_begun = False
        self._reset(MetricsHistory())

    def _reset(self, history: MetricsHistory, seconds_before: float = 0.0) -> None:
        self._history = history
        self._seconds_before, self._epoch_start = seconds_before, self._clock()
        self._goes_on = history.open is not None
        self._done_at = dict.fromkeys(self._intervals, history.run.batches)
        self._drawn: dict[Path, tuple[int, int]] = {}

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return self._files.folder

    @property
    def epoch_metrics(self) -> list[EpochMetrics]:
        """The epochs that have ended."""
        return list(self._history.epochs)

    def prepare(self) -> None:
        """Load what draws and writes curves, and draw once to nowhere, before a budget is measured beside it."""
        if self._board is not None:
            self._attempt("writing curves for TensorBoard", EventFile.load)
        if find_spec("matplotlib") is not None:
            self._attempt("drawing", _pictures().warm_up)
            _give_back()

    def share_curves(self, add_points: Callable[[Mapping[str, float], int], None]) -> None:
        """Give what event files of the run lack to these from now on, in place of writing further ones.

        Args:
            add_points: adds a point to each of some curves, by name, at a step from 1.
        """
        if self._board is not None:
            self._board.share(add_points)

    def begin_run(self) -> None:
        """Begin a run: what an earlier one has left in the folder is moved aside, which the log says.

        Raises:
            InputError: the folder cannot be written to.
        """
        if self._board is not None:
            self._board.close()
        self._files.begin()
        self._has_begun = True
        self._reset(MetricsHistory())

    def resume(self, batch_idx: int, epoch: int) -> None:
        """Go on in the files of an earlier run: what lies at this batch and behind it is cut off.

        Args:
            batch_idx: number of the batch that is trained next, from 0.
            epoch: number of the epoch that it is in, from 0.

        Raises:
            InputError: the files cannot be changed.
        """
        read = ReadBack(batch_idx, epoch)
        self._files.take_up(read.keeps_batch, read.keeps_epoch)
        self._has_begun = True
        missing = read.finish()
        self._reset(read.history, read.seconds)
        if self._board is not None:
            self._board.resume_at(batch_idx)
        self._attempt("writing metrics", lambda: self._add_epochs(missing))
        self._attempt("writing metrics", self._refresh)

    def start_epoch(self, epoch: int | None = None) -> None:
        """Begin an epoch; one that is open and holds batches ends before, unless a resume goes on in it.

        Args:
            epoch: its number, from 0; the next one if not given. Numbers ascend.

        Raises:
            InputError: the folder cannot be written to.
        """
        if not self._has_begun:
            self.begin_run()
        history = self._history
        if not (self._goes_on and epoch in (None, history.epoch)):
            if history.open is not None and history.open.batches:
                self.end_epoch()
            history.start(epoch)
            self._seconds_before = 0.0
        self._goes_on = False
        self._epoch_start = self._clock()

    def record_batch(self, batch_metrics: BatchMetrics) -> None:
        """Note a batch; where no epoch has begun, one does.

        Raises:
            InputError: it is no :class:`BatchMetrics`, or the folder cannot be written to.
        """
        if not isinstance(batch_metrics, BatchMetrics):
            raise InputError(f"record_batch takes BatchMetrics, got {type(batch_metrics).__name__}")
        if self._history.open is None or self._goes_on:
            self.start_epoch()
        with without_memory_limit():
            position = self._history.add(batch_metrics)
            line = {"epoch": self._history.epoch, **batch_metrics.to_dict(), "epoch_seconds": round(self._seconds, 3)}
            self._attempt("writing metrics", lambda: self._files.add_batch(line))
            if (board := self._board) is not None:
                self._attempt("writing curves for TensorBoard", lambda: board.batch(position, batch_metrics))
            self._do_what_is_due()

    def end_epoch(self, total_samples: int | None = None, total_batches: int | None = None) -> EpochMetrics:
        """End the epoch, and return what it came to; :class:`EpochMetrics` says how each figure is made.

        Args:
            total_samples: samples that it held; those recorded if not given.
            total_batches: batches that it held; those recorded if not given.

        Raises:
            InputError: none has begun.
        """
        if self._history.open is None:
            raise InputError(Problem("no epoch has begun", advice="Call start_epoch() first."))
        with without_memory_limit():
            metrics = self._history.end(total_samples, total_batches, self._seconds)
            self._attempt("writing metrics", lambda: self._files.add_epoch(metrics.to_dict()))
            if (board := self._board) is not None:
                position = self._history.position
                self._attempt("writing curves for TensorBoard", lambda: board.epoch(position, metrics))
        logger.info(_in_words(metrics))
        return metrics

    def generate_report(self) -> dict[str, Any]:
        """Return the report of the run so far, and bring all files up to date, the picture of curves among them.

        Its parts: ``summary``, ``loss_statistics``, ``batch_size_statistics``, ``memory_statistics`` (MiB),
        ``throughput_statistics``, ``per_task_statistics``, ``epoch_metrics``, ``units``.
        """
        report = report_of(self._history, self._history.so_far(self._seconds))
        if not self._has_begun:
            return report
        with without_memory_limit():
            self._attempt("writing metrics", self._refresh)
            self._attempt("writing the report", lambda: self._files.write_report(report))
            if self._history.run.batches:
                self._attempt("drawing", self._draw_curves)
            if self._board is not None:
                self._attempt("writing curves for TensorBoard", self._board.close)
        return report

    def plot_training_curves(self) -> Path:
        """Draw training_curves.png, and return where it lies.

        Raises:
            InputError: nothing has been recorded, or matplotlib is missing.
            OSError: it cannot be written.
        """
        self._check_recorded()
        self._draw_curves()
        return self._files.curves

    def plot_task_comparison(self) -> Path:
        """Draw task_comparison.png, and return where it lies.

        Raises:
            InputError: nothing has been recorded, or matplotlib is missing.
            OSError: it cannot be written.
        """
        self._check_recorded()
        self._draw_comparison()
        return self._files.comparison

    @property
    def has_open_batches(self) -> bool:
        """Whether an epoch is on its way that holds batches."""
        return self._history.open is not None and self._history.open.batches > 0

    def close(self) -> None:
        """Bring all files and pictures up to date; a batch after it is noted all the same."""
        self.generate_report()
        if self._history.run.batches:
            with without_memory_limit():
                self._attempt("drawing", self._draw_comparison)

    @property
    def _seconds(self) -> float:
        """Seconds of the epoch on its way."""
        return self._seconds_before + self._clock() - self._epoch_start

    def _do_what_is_due(self) -> None:
        batches = self._history.run.batches
        for action, interval in self._intervals.items():
            if batches - self._done_at[action] >= max(interval, LEAST_GROWTH * batches):
                self._done_at[action] = batches
                self._attempt("writing metrics" if action == self._refresh else "drawing", action)

    def _add_epochs(self, epochs: Sequence[EpochMetrics]) -> None:
        for metrics in epochs:
            self._files.add_epoch(metrics.to_dict())

    def _refresh(self) -> None:
        self._files.refresh()

    def _draw_curves(self) -> None:
        path = self._files.curves
        self._draw(path, lambda: _pictures().draw_training_curves(path, self._history))

    def _draw_comparison(self) -> None:
        path, so_far = self._files.comparison, self._history.so_far(self._seconds)
        self._draw(path, lambda: _pictures().draw_task_comparison(path, self._history, so_far))

    def _draw(self, path: Path, draw: Callable[[], None]) -> None:
        """Draw a picture, unless the one that lies there shows all there is."""
        shown = (self._history.run.batches, len(self._history.epochs))
        if self._drawn.get(path) != shown or not path.exists():
            draw()
            _give_back()
            self._drawn[path] = shown

    def _check_recorded(self) -> None:
        if not self._history.run.batches:
            raise InputError(Problem("nothing has been recorded yet", advice="Call record_batch() for each batch."))

    def _attempt(self, what: str, action: Callable[[], None]) -> None:
        """Do what a training is not to end by; say once that it failed. Lines that found no room wait."""
        try:
            action()
        except Exception as error:
            if what not in self._warned:
                self._warned.add(what)
                reason = f"{type(error).__name__}: {error}"
                logger.warning("%s failed, and the training goes on; this is said once. %s", what.capitalize(), reason)


def _pictures() -> ModuleType:
    """Return the module that draws.

    Raises:
        InputError: matplotlib is missing.
    """
    if find_spec("matplotlib") is None:
        raise InputError("pictures of curves need matplotlib: pip install 'trainauto[multitask]'")
    from trainauto.tasks.multitask.monitoring import pictures

    return pictures


def _give_back() -> None:
    """Give back what a picture took: its parts refer to each other, and what they leave would count as a step's."""
    gc.collect()
    from trainauto.memory.monitor.release import trim_heap

    trim_heap()


def _in_words(metrics: EpochMetrics) -> str:
    parts = [f"epoch {metrics.epoch}: {metrics.total_batches} batches, {metrics.total_samples} samples"]
    if metrics.avg_loss is not None:
        parts.append(f"loss {metrics.avg_loss:.4g}")
    if metrics.per_task_avg_loss:
        losses = (f"{task} {loss:.4g}" for task, loss in sorted(metrics.per_task_avg_loss.items()))
        parts.append(f"by task {', '.join(losses)}")
    if metrics.peak_memory_mb is not None:
        parts.append(f"peak {metrics.peak_memory_mb:.0f} MiB")
    if metrics.avg_throughput_samples_per_sec is not None:
        parts.append(f"{metrics.avg_throughput_samples_per_sec:.1f} samples/s")
    if metrics.oom_recoveries:
        parts.append(f"out of memory and recovered in {metrics.oom_recoveries}")
    return "; ".join(parts)
