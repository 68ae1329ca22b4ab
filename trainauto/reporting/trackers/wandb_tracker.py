"""A run in Weights & Biases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from trainauto.reporting.trackers.event_table import COLUMNS, EventTable
from trainauto.reporting.trackers.tracker import End, Event, Point, TrackedRun, Tracker
from trainauto.reporting.trackers.tracker_ids import TrackerIds

_DECISIONS = "decisions"
_STEP = "progress/step"
"""What curves go over. wandb's own count of steps never goes back, and what is logged at a lower one is dropped; a
resume goes back to its checkpoint."""
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
        self._events = EventTable()
        self._ahead = 0

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
        self._run.define_metric(_STEP, hidden=True)
        self._run.define_metric("*", step_metric=_STEP)
        self._ahead = max(0, self._run.starting_step - run.resumed_after)
        self._newest = 0
        self._events = EventTable()

    def log(self, point: Point) -> None:
        """Add points to curves."""
        self._log(point.values, point.step)
        self._send_events(point.step)

    def event(self, event: Event) -> None:
        """Add a row to the table."""
        self._events.add(event)
        self._send_events(event.step)

    def finish(self, end: End) -> None:
        """Note how the run ended; a failed one is one that failed there, too."""
        if self._events.is_due(at_end=True):
            self._send_events(self._events.newest.step, at_end=True)
        self._run.summary["status"], self._run.summary["reason"] = end.status, end.reason
        self._run.finish(exit_code=1 if end.status == "failed" else 0)

    def _send_events(self, step: int, *, at_end: bool = False) -> None:
        """Log the table where it is due: each time is another file and another artifact."""
        from wandb import Table

        if self._events.is_due(at_end=at_end):
            self._log({_DECISIONS: Table(columns=list(COLUMNS), data=self._events.rows())}, step)
            self._events.note_sent()

    def _log(self, values: Mapping[str, Any], step: int) -> None:
        # After a rollback steps come a second time, and wandb drops what is said of a step before its newest.
        self._ahead = max(self._ahead, self._newest - step)
        self._newest = step + self._ahead
        self._run.log({**values, _STEP: step}, step=self._newest)
