"""The files of a monitor: lines that are appended, and arrays made of them, each whole or not at all.

``training_metrics/`` holds them. A line is one write to a file opened for appending: a kill loses the line it falls
into and no other. The arrays, for readers that want one object, are copies that are refreshed now and then.
"""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import remove_leftovers, write_atomically, write_json_atomically
from trainauto.core.json_text import read_lines, to_json
from trainauto.core.line_file import append_lines

logger = logging.getLogger(__name__)

FOLDER = "training_metrics"


class MetricsFiles:
    """Where the figures of a run are kept.

    What finds no room waits, and is written before what comes after it.

    Args:
        output_dir: folder that ``training_metrics/`` is made in; one of that name is taken itself.

    Attributes:
        folder: of the files.
        batch_lines: one line a batch.
        epoch_lines: one line an epoch.
        batches: all batches as one array.
        epochs: all epochs as one array.
        report: the run in figures.
        curves: picture of its curves.
        comparison: picture of its tasks side by side.
        board: folder of TensorBoard's event files.
    """

    def __init__(self, output_dir: Path) -> None:
        self.folder = output_dir if output_dir.name == FOLDER else output_dir / FOLDER
        self.batch_lines, self.epoch_lines = self.folder / "batch_metrics.jsonl", self.folder / "epoch_metrics.jsonl"
        self.batches, self.epochs = self.folder / "batch_metrics.json", self.folder / "epoch_metrics.json"
        self.report, self.board = self.folder / "training_report.json", self.folder / "tensorboard"
        self.curves, self.comparison = self.folder / "training_curves.png", self.folder / "task_comparison.png"
        self._waiting: dict[Path, bytes] = {}

    def begin(self) -> None:
        """Make the folder; one that an earlier run has left keeps its files under another name, which the log has.

        Raises:
            InputError: the folder cannot be made or moved.
        """
        self._waiting.clear()
        try:
            if self.batch_lines.exists() or self.epoch_lines.exists():
                aside = _free_name(self.folder)
                self.folder.rename(aside)
                logger.info("%s held the metrics of an earlier run: they are in %s now", self.folder, aside)
            self._make()
        except OSError as error:
            raise InputError(
                Problem(f"metrics cannot be written to {self.folder}: {error}", advice="Give another output_dir.")
            ) from error

    def take_up(
        self, keeps_batch: Callable[[Mapping[str, Any]], bool], keeps_epoch: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        """Leave of an earlier run's lines those that are kept, asked in their order; half-written ones go, too.

        Raises:
            InputError: the files cannot be changed.
        """
        self._waiting.clear()
        try:
            self._make()
            _keep_lines(self.batch_lines, keeps_batch)
            _keep_lines(self.epoch_lines, keeps_epoch)
        except OSError as error:
            raise InputError(
                Problem(f"metrics in {self.folder} cannot be continued: {error}", advice="Give another output_dir.")
            ) from error

    def add_batch(self, line: Mapping[str, Any]) -> None:
        """Append a batch.

        Raises:
            OSError: there is no room; the line waits.
        """
        self._add(self.batch_lines, line)

    def add_epoch(self, line: Mapping[str, Any]) -> None:
        """Append an epoch.

        Raises:
            OSError: there is no room; the line waits.
        """
        self._add(self.epoch_lines, line)

    def refresh(self) -> None:
        """Write the arrays anew, with all lines so far.

        Raises:
            OSError: there is no room; the arrays of before stay.
        """
        self._write_waiting()
        _write_array(self.batch_lines, self.batches)
        _write_array(self.epoch_lines, self.epochs)

    def write_report(self, report: Mapping[str, Any]) -> None:
        """Write the report; what JSON has no number for becomes a word, as in the lines.

        Raises:
            OSError: there is no room; a report of before stays.
        """
        write_json_atomically(self.report, json.loads(to_json(report)))

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)

    def _add(self, path: Path, line: Mapping[str, Any]) -> None:
        self._waiting[path] = self._waiting.get(path, b"") + (to_json(line) + "\n").encode()
        self._write_waiting()

    def _write_waiting(self) -> None:
        for path in list(self._waiting):
            append_lines(path, self._waiting[path])
            del self._waiting[path]


def _keep_lines(path: Path, is_kept: Callable[[Mapping[str, Any]], bool]) -> None:
    if not path.exists():
        return

    def write(temporary: Path) -> None:
        with temporary.open("wb") as target:
            for line in read_lines(path):
                if is_kept(line):
                    target.write((to_json(line) + "\n").encode())

    write_atomically(path, write)


def _write_array(lines: Path, array: Path) -> None:
    """Make an array of lines without reading what they say: long runs have many."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as target:
            target.write(b"[")
            before = b"\n"
            if lines.exists():
                with lines.open("rb") as source:
                    for line in source:
                        if line.endswith(b"}\n"):
                            target.write(before + line[:-1])
                            before = b",\n"
            target.write(b"\n]\n")

    write_atomically(array, write)


def _free_name(folder: Path) -> Path:
    number = 1
    while (aside := folder.with_name(f"{folder.name}_{number}")).exists():
        number += 1
    return aside
