"""What a loop of one's own leaves behind: a run directory as every run's, or lines of the logger alone."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from trainauto.control.control_settings import ControlSettings
from trainauto.core.decisions import Decision, KeepPlan, PlanChange, Rollback
from trainauto.core.plan import Axis
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import RunEnd, RunSummary
from trainauto.engine.training import Training
from trainauto.integrations.loop_model import LoopModel
from trainauto.integrations.map_samples import MapSamples
from trainauto.reporting.default_sinks import default_sinks
from trainauto.reporting.formatting import decision_lines
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.sinks import Sink
from trainauto.reporting.tensorboard import TensorBoard
from trainauto.storage.run_directory import RunDirectory

logger = logging.getLogger(__name__)

_TRAINAUTO = logging.getLogger("trainauto")

LOGGED_EVERY = 50
"""Steps between lines of the console and the log."""


class LoopReports:
    """Tells sinks of a run directory, or without one the logger, what was decided.

    Args:
        root: folder of runs; ``None`` writes nothing.
        on_console: whether steps are told on the console, too; without it, only what is said in words is.
        curves_every: steps between points of curves.
        more_sinks: gives sinks beside those of the run directory, which they have without one, too; it is told what
            writes the curves of this start, ``None`` where nothing does.

    Attributes:
        folder: that of this run; empty without one.
        name: of the loop.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        *,
        on_console: bool = True,
        curves_every: int = 1,
        more_sinks: Callable[[TensorBoard | None], Sequence[Sink]] = lambda _curves: (),
    ) -> None:
        self._on_console, self._curves_every, self._more_sinks = on_console, curves_every, more_sinks
        self._root = Path(root) if root is not None else None
        self._reporter: Reporter | None = None
        self._progress = Progress()
        self._words: logging.Handler | None = None
        self.folder = ""
        self.name = self._root.name if self._root is not None else "loop"

    def start(self, summary: RunSummary, config: Mapping[str, Any], rollback: Rollback | None = None) -> None:
        """Make the folder of the run, where one is wanted, with what it was made with, and tell of its start.

        Args:
            summary: what is known of it.
            config: what it was made with.
            rollback: how the run came back to where it starts; ``None`` where nothing was undone.
        """
        if not self._on_console and not logging.getLogger().handlers:
            self._say_words()
        self._progress = summary.progress
        sinks: list[Sink] = []
        if self._root is not None:
            directory = RunDirectory.create(self._root, "")
            directory.write_config({"name": self.name, **config})
            self.folder = str(directory.path)
            sinks = default_sinks(
                directory,
                LOGGED_EVERY,
                console=self._on_console,
                curves_every=self._curves_every,
            )
            summary = replace(summary, run_directory=self.folder, page=str(directory.dashboard))
        sinks += self._more_sinks(next((sink for sink in sinks if isinstance(sink, TensorBoard)), None))
        if not sinks:
            return
        self._reporter = Reporter(sinks)
        self._reporter.start(summary)
        if rollback is not None:
            self._reporter.rolled_back(summary, rollback)

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """Tell of a step."""
        self._progress = progress
        if self._reporter is not None:
            self._reporter.step(record, decisions, progress)
        self._say(record.step, decisions)

    def validation(self, record: ValidationRecord, decisions: Sequence[Decision] = ()) -> None:
        """Tell of an evaluation."""
        if self._reporter is not None:
            self._reporter.validation(record, (), decisions)
        self._say(record.step, decisions)

    def sync(self) -> None:
        """Have what was told survive a power cut, as the checkpoint that is about to be written."""
        if self._reporter is not None:
            self._reporter.sync()

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """Tell that the loop has gone back to a checkpoint of its own."""
        self._progress = summary.progress
        if self._reporter is not None:
            self._reporter.rolled_back(summary, rollback)
        self._say(rollback.to_step, [rollback])

    def _say(self, step: int, decisions: Sequence[Decision]) -> None:
        """Say decisions in the log where no folder holds them."""
        for decision in decisions if self._root is None else ():
            if isinstance(decision, PlanChange | KeepPlan):
                if not getattr(decision, "announced", False):
                    verb = "now" if isinstance(decision, PlanChange) else "still"
                    logger.info("step %d: %s %s: %s", step, verb, decision.plan, decision.reason)
            else:
                logger.info("%s", " ".join(decision_lines(step, decision, 0)))

    def failed(self, error: BaseException) -> None:
        """Tell of an error that ends the loop."""
        if isinstance(error, KeyboardInterrupt | SystemExit):
            reason = f"stopped by {type(error).__name__}"
            self._end(RunEnd("interrupted", reason, self._progress, termination_status="interrupted"))
            return
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        self._end(RunEnd("failed", reason, self._progress, termination_status="failed"))

    def close(self, end: RunEnd | None = None) -> None:
        """Tell of the end, and close what is written.

        Args:
            end: how it was; its progress is filled in.
        """
        end = end or RunEnd("completed", "the loop has ended", self._progress)
        self._end(replace(end, progress=self._progress))

    def _end(self, end: RunEnd) -> None:
        if self._reporter is not None:
            self._reporter.end(end)
            self._reporter.close()
            self._reporter = None
        if self._words is not None:
            _TRAINAUTO.removeHandler(self._words)
            self._words = None

    def _say_words(self) -> None:
        """Print messages of the log where the program has not configured logging."""
        self._words = logging.StreamHandler()
        self._words.setLevel(logging.INFO)
        self._words.setFormatter(logging.Formatter("%(message)s"))
        _TRAINAUTO.addHandler(self._words)


def options_of(
    axes: Sequence[Axis], settings: Mapping[str, Any] | None, max_norm: float | None, memory_budget: str | None
) -> dict[str, Any]:
    """Return what a loop is given beside its automations; a resume compares it."""
    bounds = [asdict(axis) for axis in axes]
    return {"bounds": bounds, "settings": settings or {}, "max_norm": max_norm, "memory_budget": memory_budget}


def config_of(run: Training, model: LoopModel, settings: ControlSettings) -> dict[str, Any]:
    """Return what a loop was made with, for config.json."""
    return {
        "plan": run.loader.plan.to_dict(),
        "axes": [asdict(axis) for axis in run.axes],
        "objectives": {
            objective.name: {
                "optimizer": type(objective.optimizer).__name__,
                "learning_rate": float(objective.optimizer.param_groups[0]["lr"]),
            }
            for objective in model.given
        },
        "memory_budget_bytes": run.budget_bytes,
        "max_norm": run.controls.max_norm,
        "controller": asdict(settings),
    }


def loop_summary(
    run: Training, module: nn.Module, samples: MapSamples, reports: LoopReports, epochs: int | None
) -> RunSummary:
    """Return what is known of a loop before its first step.

    Args:
        run: the engine's parts.
        module: what is trained.
        samples: it is trained on.
        reports: where it goes.
        epochs: length of the loop; ``None`` if unknown.
    """
    return RunSummary(
        name=reports.name,
        run_directory=reports.folder,
        device=str(run.model.device),
        network=type(module).__name__,
        parameters=sum(weight.numel() for weight in module.parameters() if weight.requires_grad),
        plan=run.loader.plan,
        total=len(samples) * (epochs or 1),
        unit="samples",
        samples={samples.name: len(samples)},
        train_set=samples.name,
        progress=run.progress,
        memory_target_bytes=run.memory_target_bytes,
        memory_limit_bytes=run.limit_bytes,
    )
