"""A run in Weights & Biases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from trainauto.reporting.trackers.tracker import End, Event, Point, TrackedRun, Tracker
from trainauto.reporting.trackers.tracker_ids import TrackerIds

_DECISIONS = "decisions"
_INIT_TIMEOUT_S = 20.0
_FINISH_TIMEOUT_S = 20.0
"""For uploads at the end, here and when the process exits: without it wandb waits for a network as long as it takes."""


class WandbTracker(Tracker):
    """Curves, options, and a table of decisions.

    Offline, a resume is a second folder of the same id: once both are uploaded they are one run.

    Args:
        project: that the run belongs to.
        root: folder in which wandb makes its own, ``wandb``.
        ids: what the run is called by trackers.
        is_online: upload while the run goes; else everything stays in that folder.
    """

    name = "wandb"
    package = "wandb"
    environment: ClassVar[Mapping[str, str]] = {
        "WANDB_ERROR_REPORTING": "false"
    }  # reports of errors in wandb leave the machine

    def __init__(self, project: str, root: Path, ids: TrackerIds, *, is_online: bool) -> None:
        self._project, self._ids, self._is_online = project, ids, is_online
        self._root = root.absolute()  # its own process has a working directory of its own
        self._run: Any = None
        self._table: Any = None

    def start(self, run: TrackedRun) -> None:
        """Begin a run of our own, which is not that of a program that uses wandb itself."""
        import wandb

        run_id = self._ids.get(self.name) or uuid4().hex[:16]
        self._ids.keep(self.name, run_id)
        self._run = wandb.init(
            project=self._project,
            name=run.name[:128],
            id=run_id,
            resume="allow",
            reinit="create_new",
            dir=str(self._root),
            mode="online" if self._is_online else "offline",
            config=dict(run.config),
            # The console is ours, and what it shows is in training.log; nothing may be asked of whoever sits there.
            settings=wandb.Settings(
                console="off", silent=True, init_timeout=_INIT_TIMEOUT_S, finish_timeout=_FINISH_TIMEOUT_S
            ),
        )
        self._table = wandb.Table(columns=["step", "kind", "text"], log_mode="INCREMENTAL")

    def log(self, point: Point) -> None:
        """Add points to curves."""
        self._run.log(dict(point.values), step=point.step)

    def event(self, event: Event) -> None:
        """Add a row to the table."""
        self._table.add_data(event.step, event.kind, event.text)
        self._run.log({_DECISIONS: self._table}, step=event.step)

    def finish(self, end: End) -> None:
        """Note how the run ended; a failed one is one that failed there, too."""
        self._run.summary["status"], self._run.summary["reason"] = end.status, end.reason
        self._run.finish(exit_code=1 if end.status == "failed" else 0)
