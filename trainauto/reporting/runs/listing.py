"""The runs below a folder: where they are, and what each has come to."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import found_at
from trainauto.core.json_text import read_object
from trainauto.reporting.runs.figures import RunFigures, quick_figures_of
from trainauto.storage.run_directory import CURRENT, TRAINER_RUNS, RunDirectory
from trainauto.storage.run_log import DAMAGE

_DEEPEST = 4
"""Folders down to which runs are looked for: experiments/NAME/TIME, or OUTPUT/memory/TIME, from one or two above."""

_TIME = re.compile(r"(\d{8}_\d{6})(_\d+)?")
_OF_A_RUN = frozenset({"tb", "checkpoints", "validation", "training_metrics", "model"})
"""Folders in that of a run or beside runs, which hold none; elsewhere an experiment may be called so."""


@dataclass(frozen=True)
class ListedRun:
    """One run of a listing.

    Attributes:
        path: its folder, below the folder that was asked for.
        started: when it began, in seconds since 1970; of a Trainer, its newest start.
        trains: what it trains, in a few words; empty where its options do not say.
        figures: what it has come to; ``None`` where that cannot be read.
        problem: why not; empty where it can.
    """

    path: Path
    started: float
    trains: str = ""
    figures: RunFigures | None = None
    problem: str = ""


def is_folder_of_runs(path: Path) -> bool:
    """Whether a folder is no run itself, nor leads to a newest one, but has runs below."""
    if found_at(path) != "folder":
        return False
    if (path / "config.json").is_file() or any((path / at / CURRENT).exists() for at in ("", TRAINER_RUNS)):
        return False
    return next(_folders(path), None) is not None


def list_runs(paths: Sequence[Path]) -> list[ListedRun]:
    """Return the runs below some folders, those that began last first; one that cannot be read says why.

    Raises:
        InputError: there is no run below one of them.
    """
    folders: dict[Path, Path] = {}
    for path in paths:
        found = list(_folders(path))
        if not found:
            message = f"{path} has no runs below it" if found_at(path) == "folder" else f"{path} is no folder"
            raise InputError(Problem(message, advice="Name a folder of runs: experiments, or experiments/NAME."))
        folders |= {folder.resolve(): folder for folder in found}
    return sorted((_listed(folder) for folder in folders.values()), key=lambda run: (-run.started, run.path))


def runs_beside(path: Path) -> int:
    """Return how many runs an experiment has, by its folder; 0 where that leads to none."""
    return sum(1 for _ in _folders(path)) if (path / CURRENT).exists() else 0


def _folders(path: Path, depth: int = 0) -> Iterator[Path]:
    """Yield the folders of runs: the folder itself, else those below; links are not followed."""
    if depth and _is_run(path):
        yield path
        return
    with suppress(OSError):  # closed to others, or deleted meanwhile
        inside = sorted(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
        passed_over = _OF_A_RUN if _is_run(path) or _has_runs_inside(path, inside) else frozenset()
        for name in inside if depth < _DEEPEST else ():
            if not name.startswith(".") and name not in {*passed_over, "node_modules"}:
                yield from _folders(path / name, depth + 1)


def _has_runs_inside(path: Path, names: Sequence[str]) -> bool:
    """Whether a folder is that of one experiment: runs lie in it, or did and ``current`` still leads to one."""
    return os.path.lexists(path / CURRENT) or any(map(_TIME.fullmatch, names))


def _is_run(path: Path) -> bool:
    """Whether a folder is that of a run: named as they are made, or with a log; a model has config.json, too."""
    run = RunDirectory(path)
    if _TIME.fullmatch(path.name) or run.records.is_file() or run.log_object.is_file():
        return True
    return run.config.is_file() and (path / TRAINER_RUNS).is_dir()


def _listed(folder: Path) -> ListedRun:
    run = RunDirectory(folder)
    try:
        started = _started(run)
        if not any(file.is_file() for file in (run.config, run.of_steps.records, run.of_steps.log_object)):
            return ListedRun(folder, started, problem="nothing is written yet, or it ended before that")
        figures = quick_figures_of(run)
        return ListedRun(folder, started, _trains(figures.options), figures)
    except (InputError, *DAMAGE) as error:
        words = error.problems[0].message if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        words = words.replace(f"{folder}{os.sep}", "")
        return ListedRun(folder, _time_in_name(folder) or 0.0, problem=f"cannot be read: {words}")


def _started(run: RunDirectory) -> float:
    """Return when a run began: as its log says, else its name, else its folder."""
    with suppress(ValueError, TypeError, KeyError):
        return datetime.fromisoformat(read_object(run.of_steps.log_object)["started"]).timestamp()
    return _time_in_name(run.path) or run.path.stat().st_mtime


def _time_in_name(folder: Path) -> float | None:
    match = _TIME.fullmatch(folder.name)
    with suppress(ValueError):  # digits, but no date
        return datetime.strptime(match[1], "%Y%m%d_%H%M%S").astimezone().timestamp() if match else None
    return None


def _trains(options: Mapping[str, Any]) -> str:
    """Return what a run trains: its network or model, and of several tasks that it does."""
    keys = ("network_g.type", "model.name", "model.pretrained", "model.type", "model.config.model_type")
    found = next((str(options[key]) for key in keys if options.get(key)), "")
    return ", ".join(part for part in (str(options.get("task") or ""), found) if part)
