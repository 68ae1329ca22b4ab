"""A run as TensorBoard curves and pictures. torch and tensorboard are imported when the run starts, not before."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainauto.core.decisions import Decision
from trainauto.core.records import PeakReading, Progress, StepRecord, ValidationRecord
from trainauto.core.reports import Picture, Pixels, RunEnd, RunSummary
from trainauto.reporting.figures import GIB_BYTES, StepFigures, StepWindow, gain_over_bicubic
from trainauto.reporting.sinks import Sink

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

MOST_PICTURES = 4
LONGEST_SIDE_PX = 768
_FLUSH_S = 30


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
        self._writer: SummaryWriter | None = None

    def start(self, summary: RunSummary) -> None:
        """Open the event file.

        Where there are others, of the run that is resumed or of one killed before its first checkpoint, what they hold
        after the step that is gone on from is hidden.
        """
        from torch.utils.tensorboard.writer import SummaryWriter

        begun_before = self._folder.is_dir() and any(self._folder.iterdir())
        purge_step = summary.progress.steps + 1 if begun_before else None
        self._writer = SummaryWriter(str(self._folder), purge_step=purge_step, flush_secs=_FLUSH_S)
        pages = {name: ["Multiline", [f"{name}/.*"]] for name in ("memory", "plan", "loss")}
        self._writer.add_custom_scalars({"trainauto": pages})

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:  # noqa: ARG002
        """Add a point to every curve, every so many steps."""
        self._window.add(record)
        if len(self._window) >= self._every:
            self._write_steps()

    def validation(self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision]) -> None:  # noqa: ARG002
        """Add the means of a validation, the gains over bicubic enlargement, and pictures."""
        if self._writer is None:
            return
        for metric, value in record.metrics.items():
            tag = f"validation/{record.dataset}/{metric}"
            self._writer.add_scalar(tag, value, record.step)
            gain = gain_over_bicubic(record, metric)
            if gain is not None:
                self._writer.add_scalar(f"{tag}_gain_over_bicubic", gain, record.step)
        for picture in pictures[:MOST_PICTURES]:
            tag = f"{record.dataset}/{picture.name} (bicubic, output, reference)"
            self._writer.add_image(tag, side_by_side(picture), record.step, dataformats="HWC")
        self._writer.flush()

    def end(self, summary: RunEnd) -> None:  # noqa: ARG002
        """Write the steps not yet written."""
        if len(self._window):
            self._write_steps()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write_steps(self) -> None:
        figures = self._window.figures()
        self._window.clear()
        if self._writer is None:
            return
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

        # All curves in one event: add_scalar would make one for each, at four times the cost.
        points = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(figures).items()]
        file_writer: Any = self._writer.file_writer  # typed as None, but open since the writer was made
        file_writer.add_summary(Summary(value=points), figures.last.step)


def scalars(figures: StepFigures) -> dict[str, float]:
    """Return the points of all curves by tag."""
    return {
        **{f"loss/{name}": value for name, value in figures.losses.items()},
        "loss/total": figures.loss,
        **{f"lr/{name}": value for name, value in figures.last.learning_rates.items()},
        **{f"grad_norm/{name}": value for name, value in figures.grad_norms.items()},
        "speed/iterations_per_s": figures.steps_per_s,
        "speed/samples_per_s": figures.samples_per_s,
        "speed/data_s": figures.data_s,
        "speed/step_s": figures.step_s,
        **{f"plan/{name}": value for name, value in figures.last.plan.to_dict().items()},
        **(_memory(figures.peak) if figures.peak else {}),
    }


def side_by_side(picture: Picture) -> Pixels:
    """Return bicubic, output and reference beside each other, (H, W, C), no side longer than 768 px.

    Too large ones are cut to their middle rather than scaled down, which would hide the very detail to be judged.
    """
    panels = [panel for panel in (picture.bicubic, picture.output, picture.reference) if panel is not None]
    height = min(LONGEST_SIDE_PX, *(panel.shape[0] for panel in panels))
    width = min(LONGEST_SIDE_PX // len(panels), *(panel.shape[1] for panel in panels))
    channels = max(panel.shape[2] for panel in panels)
    return np.concatenate([_middle(panel, height, width, channels) for panel in panels], axis=1)


def _middle(panel: Pixels, height: int, width: int, channels: int) -> Pixels:
    top, left = (panel.shape[0] - height) // 2, (panel.shape[1] - width) // 2
    cut = panel[top : top + height, left : left + width]
    return cut if cut.shape[2] == channels else np.repeat(cut, channels, axis=2)


def _memory(peak: PeakReading) -> dict[str, float]:
    # Where there is no caching allocator, the reading is that of the whole process.
    if peak.reserved is None:
        return {"memory/process_gib": peak.allocated / GIB_BYTES}
    return {
        "memory/allocated_gib": peak.allocated / GIB_BYTES,
        "memory/reserved_gib": peak.reserved / GIB_BYTES,
    }
