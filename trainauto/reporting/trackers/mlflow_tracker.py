"""A run in MLflow."""

import csv
import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from trainauto.core.json_text import to_json
from trainauto.core.masking import without_secrets
from trainauto.reporting.trackers.event_table import COLUMNS, EventTable
from trainauto.reporting.trackers.names import LONGEST_TEXT, plain_name
from trainauto.reporting.trackers.tracker import End, Event, Point, TrackedRun, Tracker
from trainauto.reporting.trackers.tracker_ids import TrackerIds

_MOST_AT_ONCE = 100
"""Options in one request, at most (MLflow's bound)."""
_STATUS = {"completed": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}

_Item = TypeVar("_Item")


class MlflowTracker(Tracker):
    """Curves, options as parameters, and decisions as a table in a CSV file among the artifacts.

    A resume goes on with the same run; its decisions are a file of their own. Parameters of MLflow cannot be changed:
    options that a resume changes are in that file.

    Args:
        experiment: that the run belongs to; made where there is none.
        tracking_uri: address of the store; ``None`` is a database in ``root``, with its artifacts beside it.
        root: folder of runs.
        ids: what the run is called by trackers.
    """

    name = "mlflow"
    package = "mlflow"
    environment: ClassVar[Mapping[str, str]] = {
        "MLFLOW_DISABLE_TELEMETRY": "true"
    }  # what is used of MLflow leaves the machine

    def __init__(self, experiment: str, tracking_uri: str | None, root: Path, ids: TrackerIds) -> None:
        self._experiment, self._root, self._ids = experiment, root.absolute(), ids
        self._uri = tracking_uri or f"sqlite:///{(self._root / 'mlflow.db').as_posix()}"
        self._store = without_secrets(self._uri)
        self._artifacts = None if tracking_uri else (self._root / "mlartifacts").as_uri()
        self._client: Any = None
        self._run_id = ""
        self._file = "decisions.csv"
        self._events = EventTable()

    def start(self, run: TrackedRun) -> None:
        """Begin a run, or go on with the one that was kept."""
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):  # a new database is told of in thirty lines
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = MlflowClient(tracking_uri=self._uri)
        self._events = EventTable()
        before = self._resumed_parameters()
        if before is None:
            self._run_id = self._new_run(run.name)
            self._ids.keep(self.name, {"run_id": self._run_id, "store": self._store})
        if run.resumed_after:
            self._file = f"decisions_after_step_{run.resumed_after}.csv"
        self._log_config(run, before or {})

    def log(self, point: Point) -> None:
        """Add points to curves, in one request."""
        from mlflow.entities import Metric

        at_ms = round(1000 * point.time_s)
        metrics = [Metric(plain_name(name), value, at_ms, point.step) for name, value in point.values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)
        self._write_events()

    def event(self, event: Event) -> None:
        """Add a row to the file."""
        self._events.add(event)
        self._write_events()

    def finish(self, end: End) -> None:
        """Note how the run ended."""
        self._write_events(at_end=True)
        self._client.set_tag(self._run_id, "status", end.status)
        self._client.set_tag(self._run_id, "reason", end.reason)
        self._client.set_terminated(self._run_id, _STATUS[end.status])

    def _resumed_parameters(self) -> dict[str, str] | None:
        """Take up the run that was kept, and return its parameters; ``None`` where there is none in this store."""
        from mlflow.exceptions import MlflowException

        kept = self._ids.get(self.name)
        if not isinstance(kept, dict) or kept.get("store") != self._store:
            return None
        try:
            found = self._client.get_run(str(kept.get("run_id")))
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":  # somebody has deleted it
                return None
            raise
        self._run_id = found.info.run_id
        self._client.update_run(self._run_id, status="RUNNING")
        return dict(found.data.params)

    def _new_run(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment is None:
            place = self._client.create_experiment(self._experiment, artifact_location=self._artifacts)
        else:
            place = experiment.experiment_id
        return str(self._client.create_run(place, run_name=name).info.run_id)

    def _log_config(self, run: TrackedRun, before: dict[str, str]) -> None:
        from mlflow.entities import Param

        config = {plain_name(name): _text(value) for name, value in run.config.items()}
        for name, value in config.items():
            if name in before and before[name] != value:
                self._events.add(Event(run.resumed_after, "option", f"{name}: {before[name]} -> {value}"))
        new = [Param(name, value) for name, value in config.items() if name not in before]
        for some in _in_parts(new):
            self._client.log_batch(self._run_id, params=some)

    def _write_events(self, *, at_end: bool = False) -> None:
        """Send the file where it is due; the newest row is a tag as well, which lists of runs can show."""
        if not self._events.is_due(at_end=at_end):
            return
        text = io.StringIO()
        table = csv.writer(text)
        table.writerow(COLUMNS)
        table.writerows(self._events.rows())
        self._client.log_text(self._run_id, text.getvalue(), self._file)
        self._client.set_tag(self._run_id, "last_event", self._events.newest.text)
        self._events.note_sent()


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _in_parts(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while some := list(islice(rest, _MOST_AT_ONCE)):
        yield some
