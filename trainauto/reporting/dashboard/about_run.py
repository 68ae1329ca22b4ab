"""What a page says of a run beside its course, read from the files of its folder."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from trainauto.reporting.dashboard.run_history import About
from trainauto.reporting.formatting import in_thousands
from trainauto.reporting.run_figures import flat, read_object
from trainauto.storage.run_directory import RunDirectory


def about(run: RunDirectory) -> About:
    """Return what the folder of a run says of it; a file that is missing or damaged leaves its part out."""
    log = read_object(run.of_steps.log_object)
    known = log.get("about", {})
    # Beside a Trainer's starts lies the configuration of its model, unless the run comes from an option file.
    options = flat(read_object(run.config if run.given.is_file() else run.of_steps.config))
    return About(
        name=str(options.get("name") or _folder_name(run)),
        folder=str(run.path),
        total=log.get("total"),
        unit=str(log.get("unit", "steps")),
        started=_local_time(str(log.get("started", ""))),
        target_bytes=known.get("memory_target_bytes"),
        limit_bytes=known.get("memory_limit_bytes"),
        facts=list(_facts(known)),
        changed=[(str(key), str(value), str(default)) for key, value, default in _changed(run)],
        options=options,
        environment=[(str(label), str(text)) for label, text in known.get("environment", {}).items()],
    )


def _folder_name(run: RunDirectory) -> str:
    """Return what the folder of a run is called: an experiment's, but for a Trainer's output directory."""
    return run.path.parent.name if run.records.is_file() else run.path.name


def _facts(known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if known:
        yield "network", f"{known.get('network', '')}, {in_thousands(int(known.get('parameters', 0)))} parameters"
        yield "device", f"{known.get('device', '')}, {known.get('precision', '')}"
        yield "data", ", ".join(f"{name} {number}" for name, number in known.get("samples", {}).items())
    for label, text in known.get("facts", ()):
        yield str(label), str(text)


def _changed(run: RunDirectory) -> list[list[Any]]:
    found = read_object(run.origin).get("changed", [])
    return [entry for entry in found if isinstance(entry, list) and len(entry) == 3]


def _local_time(iso: str) -> str:
    try:
        return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""
