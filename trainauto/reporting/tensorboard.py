"""A run as TensorBoard curves and pictures. torch and tensorboard are imported when the run starts, not before."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from trainauto.core.decisions import Decision, PlanChange, Rollback
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import ImageArray, Picture, RunEnd, RunSummary
from trainauto.reporting.curves import Unit, oom_words, step_curves, unit_at_start, unit_for, validation_curves
from trainauto.reporting.event_file import EventFile
from trainauto.reporting.formatting import decision_lines
from trainauto.reporting.sinks import Sink
from trainauto.reporting.step_stats import StepWindow
from trainauto.reporting.tensorboard_page import EXPLAINED, charts, unit_in

MOST_PICTURES = 4
LONGEST_SIDE_PX = 768


class TensorBoard(Sink):
    """Writes event files.

    Args:
        folder: folder of the event files.
        every: steps between points of a curve; each point is the mean (memory: the peak) of the steps since the last.
    """

    def __init__(self, folder: Path, every: int = 1) -> None:
        self._folder = folder
        self._every = every
        self._window = StepWindow()
        self._file = EventFile(folder)
        self._summary: RunSummary | None = None
        self._unit: Unit | None = None
        self._adjusted = False

    def start(self, summary: RunSummary) -> None:
        """Open the event file. Memory is shown in MiB or GiB, as the target or the first peak reads well.

        Where there are others, of the run that is resumed or of one killed before its first checkpoint, what they hold
        after the step that is resumed from is hidden.
        """
        begun_before = self._file.hide_from(summary.progress.steps + 1)
        unit = unit_in(self._folder) if begun_before else None
        _ = self._file.writer
        self._summary = summary
        unit = unit or unit_at_start(summary)
        if unit is not None:
            self._show_memory_in(unit)

    def _show_memory_in(self, unit: Unit) -> None:
        """Settle the unit, once, and lay out the page that names curves by it."""
        if self._unit is not None or not self._file.is_open or self._summary is None:
            return
        self._unit = unit
        writer = self._file.writer
        writer.add_text("about/custom_scalars", EXPLAINED.format(unit=unit.lower()), self._summary.progress.steps)
        writer.add_custom_scalars({"trainauto": {name: ["Multiline", tags] for name, tags in charts(unit).items()}})

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:  # noqa: ARG002
        """Add a point to every curve, every so many steps, and say what happened at once."""
        self._window.add(record)
        if record.ooms:
            self._say("oom", oom_words(record), record.step)
        self._say_adjustments(decisions, record.step)
        if len(self._window) >= self._every:
            self._write_steps()

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:
        """Add the means of a validation, the gains over what costs nothing, and pictures."""
        if not self._file.is_open:
            return
        if record.peak is not None:
            self._show_memory_in(unit_for(record.peak.allocated))
        for tag, value in validation_curves(record, self._unit).items():
            self._file.writer.add_scalar(tag, value, record.step)
        for picture in pictures[:MOST_PICTURES]:
            tag = f"{record.dataset}/{picture.name} (bicubic, output, reference)"
            self._file.writer.add_image(tag, side_by_side(picture), record.step, dataformats="HWC")
        self._say_adjustments(decisions, record.step)
        self._file.writer.flush()

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """Open another event file, which hides what was undone."""
        self.close()
        self._window.clear()
        self.start(summary)
        self._say("rollback", decision_lines(rollback.to_step, rollback, 0)[0], rollback.to_step)

    def end(self, summary: RunEnd) -> None:  # noqa: ARG002
        """Write the steps not yet written, and the page where no memory was ever measured."""
        if len(self._window):
            self._write_steps()
        self._show_memory_in("GiB")

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _say_adjustments(self, decisions: Sequence[Decision], step: int) -> None:
        for decision in decisions:
            if isinstance(decision, PlanChange):
                self._adjusted = True
                self._say("adjustment", decision_lines(step, decision, 0)[0], step)

    def _say(self, event: str, text: str, step: int) -> None:
        if self._file.is_open:
            self._file.writer.add_text(f"events/{event}", text, step)

    def _write_steps(self) -> None:
        figures = self._window.figures()
        self._window.clear()
        if not self._file.is_open or self._summary is None:
            return
        if figures.peak is not None:
            self._show_memory_in(unit_for(figures.peak.allocated))
        curves = step_curves(figures, self._summary, self._unit, adjusted=self._adjusted)
        self._adjusted = False
        self.add_points(curves, figures.last.step)

    def add_points(self, curves: Mapping[str, float], step: int) -> None:
        """Add a point to each of these curves, by name; nothing happens where no event file is open."""
        if self._file.is_open:
            self._file.add_points(curves, step)


def side_by_side(picture: Picture) -> ImageArray:
    """Return bicubic, output and reference beside each other, (H, W, C), no side longer than 768 px.

    Too large ones are cut to their middle rather than scaled down, which would hide the very detail to be judged.
    """
    panels = [panel for panel in (picture.baseline, picture.output, picture.reference) if panel is not None]
    height = min(LONGEST_SIDE_PX, *(panel.shape[0] for panel in panels))
    width = min(LONGEST_SIDE_PX // len(panels), *(panel.shape[1] for panel in panels))
    channels = max(panel.shape[2] for panel in panels)
    return np.concatenate([_middle(panel, height, width, channels) for panel in panels], axis=1)


def _middle(panel: ImageArray, height: int, width: int, channels: int) -> ImageArray:
    top, left = (panel.shape[0] - height) // 2, (panel.shape[1] - width) // 2
    cut = panel[top : top + height, left : left + width]
    return cut if cut.shape[2] == channels else np.repeat(cut, channels, axis=2)
