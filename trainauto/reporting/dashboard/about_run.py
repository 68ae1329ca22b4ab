"""What a page says of a run beside its course, read from the files of its folder."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from trainauto.core.errors import InputError
from trainauto.core.json_text import read_object
from trainauto.core.masking import without_secret_value, without_secrets
from trainauto.reporting.dashboard.run_history import About
from trainauto.reporting.formatting import in_thousands
from trainauto.reporting.runs.course import starts_of
from trainauto.reporting.runs.figures import flat
from trainauto.storage.run_directory import CHANGED_OPTIONS, RunDirectory


def about(run: RunDirectory) -> About:
    """Return what the folder of a run says of it; what is missing or damaged is left out, and so are secrets.

    A page is what people send around.
    """
    log = read_object(run.of_steps.log_object)
    first = read_object(_first_start(run).log_object)
    known = _mapping(log.get("about"))
    total = log.get("total")
    # Beside a Trainer's starts lies the configuration of its model, unless the run comes from an option file.
    options = flat((run if run.given.is_file() else run.of_steps).read_config())
    return About(
        name=str(options.get("name") or _folder_name(run)),
        folder=str(run.path),
        total=total if isinstance(total, int) else None,
        unit="samples" if log.get("unit") == "samples" else "steps",
        started=_local_time(str(first.get("started", ""))),
        target_bytes=_bytes(known.get("memory_target_bytes")),
        limit_bytes=_bytes(known.get("memory_limit_bytes")),
        facts=list(_facts(known)),
        changed=_changed(run),
        options={key: without_secret_value(key, value) for key, value in options.items()},
        environment=[
            (str(label), without_secrets(str(text))) for label, text in _mapping(known.get("environment")).items()
        ],
    )


def _first_start(run: RunDirectory) -> RunDirectory:
    try:
        starts = starts_of(run)
    except InputError:  # its log is of another version, or damaged
        starts = []
    return starts[0].folder if starts else run.of_steps


def _folder_name(run: RunDirectory) -> str:
    """Return what the folder of a run is called: an experiment's, but for a Trainer's output directory."""
    return run.path.parent.name if run.records.is_file() else run.path.name


def _facts(known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    parameters = known.get("parameters")
    if "network" in known:
        size = f", {in_thousands(parameters)} parameters" if isinstance(parameters, int) else ""
        yield "network", f"{known['network']}{size}"
    if "device" in known:
        yield "device", f"{known['device']}, {known.get('precision', '')}"
    yield "data", ", ".join(f"{name} {number}" for name, number in _mapping(known.get("samples")).items())
    facts = known.get("facts")
    for fact in facts if isinstance(facts, list) else []:
        if isinstance(fact, list) and len(fact) == 2:
            yield str(fact[0]), str(fact[1])


def _changed(run: RunDirectory) -> list[tuple[str, str, str]]:
    found = read_object(run.origin).get(CHANGED_OPTIONS, [])
    entries = found if isinstance(found, list) else []
    texts = [tuple(map(str, entry)) for entry in entries if isinstance(entry, list) and len(entry) == 3]
    return [(key, str(without_secret_value(key, value)), default) for key, value, default in texts]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _bytes(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _local_time(iso: str) -> str:
    try:
        return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""
