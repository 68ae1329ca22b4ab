"""A run in trackio."""

import os
import sys
from typing import Any

from trainauto.reporting.trackers.tracker import End, Event, Point, TrackedRun, Tracker
from trainauto.reporting.trackers.tracker_ids import TrackerIds

_MODULES = ("trackio", "trackio.run", "trackio.utils", "trackio.deploy")
_SENDING = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WEBHOOK_URL")
"""Variables that would send what the option file keeps on this machine."""
_WARNINGS = ("oom", "stop")


class TrackioTracker(Tracker):
    """Curves, options, and decisions as alerts.

    Args:
        project: that the run belongs to.
        server: ``USER/NAME`` of a Space of Hugging Face, or the address of a server; ``None`` stays on this machine.
        ids: what the run is called by trackers.
    """

    name = "trackio"
    package = "trackio"

    def __init__(self, project: str, server: str | None, ids: TrackerIds) -> None:
        self._project, self._ids = project, ids
        is_address = server is not None and server.startswith(("http://", "https://"))
        self._space = None if is_address else server
        self._address = server if is_address else None
        self._run: Any = None

    def start(self, run: TrackedRun) -> None:
        """Begin a run, or go on with the one that has the name that was kept."""
        import trackio

        for name in _MODULES:  # it talks on the terminal, which is ours; only what its own modules say is caught
            if name in sys.modules:
                setattr(sys.modules[name], "print", _quiet)  # noqa: B010  # mypy knows no such attribute
        if self._space is None and self._address is None:
            for variable in _SENDING:
                os.environ.pop(variable, None)
        called = str(self._ids.get(self.name) or run.name)
        self._ids.keep(self.name, called)
        self._run = trackio.init(
            project=self._project,
            name=called,
            space_id=self._space,
            server_url=self._address,
            config=dict(run.config),
            resume="allow",
            embed=False,
            auto_log_cpu=False,  # read in this process, every 10 s
        )

    def log(self, point: Point) -> None:
        """Add points to curves."""
        self._run.log(dict(point.values), step=point.step)

    def event(self, event: Event) -> None:
        """Raise an alert: information, but for what a person may want to act on."""
        self._alert(event.kind, event.text, event.step, "warn" if event.kind in _WARNINGS else "info")

    def finish(self, end: End) -> None:
        """Note how the run ended, and write what waits."""
        if end.status == "failed":
            self._alert("failed", end.reason, None, "error")
        self._run.finish()

    def _alert(self, title: str, text: str, step: int | None, level: str) -> None:
        from trackio import AlertLevel

        self._run.alert(title, text, level=AlertLevel(level), step=step)


def _quiet(*_words: object, **_how: object) -> None:
    """Say nothing; what fails is a warning of Python's, or raised."""
