"""The folder of one run: where each file lies, how it comes into being, and how it is taken back to a checkpoint.

``experiments/<name>/<YYYYmmdd_HHMMSS>/`` holds one run; ``experiments/<name>/current`` leads to the newest of them.
"""

import mmap
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import (
    OTHERS_ARE_DONE_S,
    found_at,
    remove_leftovers,
    write_atomically,
    write_json_atomically,
    write_text_atomically,
)
from trainauto.core.json_text import is_log, read_object, step_of_line
from trainauto.core.system_errors import FULL

CURRENT = "current"

SCHEDULE_STEP = "schedule_step"
"""Key of origin.json with what a step counts in the schedule of the run."""

CHANGED_OPTIONS = "changed"
"""Key of origin.json with the options that are not at their defaults, as (key, value, default)."""

TRAINING = "training"
"""Section of config.json whose keys stand at its top, too, where openadapt-ml has them."""

MADE_BY_TRAINER = "trainer"
"""Key of config.json in the folder of a Trainer's start: which class it was."""

TRAINER_RUNS = "memory"
"""Folder of a Trainer's runs in its output directory."""


@dataclass(frozen=True)
class RunDirectory:
    """The folder of one run.

    Attributes:
        path: the folder itself, never the link to it.
    """

    path: Path

    @classmethod
    def create(cls, root: Path, name: str) -> "RunDirectory":
        """Make the folder of a new run under ``root/name`` and let ``current`` lead to it.

        Several processes may do so in the same second: each gets a folder of its own.

        Args:
            root: folder of experiments.
            name: name of the experiment; empty to put the run right under ``root``.

        Raises:
            InputError: ``current`` is a folder that another program made.
        """
        base = root / name
        link = base / CURRENT
        if link.is_dir() and not link.is_symlink():
            raise InputError(
                Problem(f"{link} is a folder, but it is to lead to the newest run", advice="Rename or delete it.")
            )
        base.mkdir(parents=True, exist_ok=True)
        remove_leftovers(base, older_than_s=OTHERS_ARE_DONE_S)
        run = cls(_make_folder(base))
        for part in (run.validation, run.checkpoints):
            part.mkdir()
        _point(link, run.path.name)
        return run

    @classmethod
    def current(cls, root: Path, name: str) -> "RunDirectory | None":
        """Return the run that ``root/name/current`` leads to; ``None`` where there is none or it has been deleted."""
        link = root / name / CURRENT
        if link.is_symlink():
            target = str(link.readlink())
        elif link.is_file():
            target = link.read_text(encoding="utf-8").strip()
        else:
            return None
        folder = link.parent / target
        return cls(folder) if target and folder.is_dir() else None

    @classmethod
    def find(cls, path: Path) -> "RunDirectory":
        """Return the run that a person means by ``path``: its folder, or that of an experiment, then its newest run.

        Of the output directory of a Trainer of transformers, the experiment in it is meant.

        Raises:
            InputError: there is no run.
        """
        found = found_at(path)
        if found != "folder":
            reason = "is a file" if found else "does not exist"
            raise InputError(Problem(f"{path} {reason}", advice="Name the folder of a run, e.g. experiments/NAME."))
        run = cls(path.resolve()) if (path / "config.json").is_file() else cls.current(path.parent, path.name)
        if run is None and (path / TRAINER_RUNS / CURRENT).exists():
            return cls.find(path / TRAINER_RUNS)
        if run is None or not run.config.is_file():
            inside = sorted(folder.name for folder in path.iterdir() if (folder / CURRENT).exists())
            known = f" Experiments in it: {', '.join(inside)}." if inside else ""
            advice = f"A run has config.json and training_log.jsonl; {path}/{CURRENT} would lead to the newest.{known}"
            raise InputError(Problem(f"{path} is no run", advice=advice))
        return run

    @property
    def earlier_with_checkpoint(self) -> "RunDirectory | None":
        """The newest run of the same name before this one that has a checkpoint."""
        runs = {state.parents[2] for state in self.path.parent.glob("*/checkpoints/step_*/state.pt")}
        before = [run for run in runs if () < _beginning_of(run) < _beginning_of(self.path)]
        return RunDirectory(max(before, key=_beginning_of)) if before else None

    @property
    def of_steps(self) -> "RunDirectory":
        """The folder that has a record of each step: of a Trainer of transformers, that of its newest start within."""
        if self.records.is_file():
            return self
        return RunDirectory.current(self.path, TRAINER_RUNS) or self

    @property
    def options_file(self) -> Path:
        """The option file as given."""
        return self.path / "options.yml"

    @property
    def whole(self) -> "RunDirectory":
        """The folder of the run that this one is a start of: of a Trainer's start, that around; else itself."""
        if self.path.parent.name != TRAINER_RUNS:
            return self
        # An experiment may be called so, too.
        return RunDirectory(self.path.parents[1]) if MADE_BY_TRAINER in read_object(self.config) else self

    @property
    def given(self) -> Path:
        """The options as given, with what the command line set: an option file like any other."""
        return self.path / "given.yml"

    @property
    def origin(self) -> Path:
        """Where the run comes from: folders, versions, samples."""
        return self.path / "origin.json"

    @staticmethod
    def until_step(file: Path, step: int) -> Path:
        """Return where a kept file stays that held up to ``step``, e.g. ``options_until_step_120.yml``."""
        return file.with_name(f"{file.stem}_until_step_{step}{file.suffix}")

    def kept_at(self, file: Path, step: int) -> Path:
        """Return the version of a kept file that held at a step: what it was replaced by later is another."""
        versions = self.earlier_versions(file)
        return next((version for end, version in versions.items() if end >= step), file)

    def earlier_versions(self, file: Path) -> dict[int, Path]:
        """Return the versions of a kept file that were replaced, by the step up to which each held, in order."""
        pattern = re.compile(rf"{re.escape(file.stem)}_until_step_(\d+){re.escape(file.suffix)}")
        matches = (pattern.fullmatch(entry.name) for entry in self.path.iterdir())
        return {end: self.until_step(file, end) for end in sorted(int(match[1]) for match in matches if match)}

    @property
    def samples(self) -> Path:
        """The files of its sets, by name and size; not there for a run of an earlier version."""
        return self.path / "samples.json"

    @property
    def config(self) -> Path:
        """The options as resolved, every default spelled out."""
        return self.path / "config.json"

    @property
    def log(self) -> Path:
        """What the console said, with timestamps."""
        return self.path / "training.log"

    @property
    def records(self) -> Path:
        """One line a step."""
        return self.path / "training_log.jsonl"

    @property
    def log_object(self) -> Path:
        """The losses so far as one JSON object of bounded size."""
        return self.path / "training_log.json"

    @property
    def validations(self) -> Path:
        """One line a validation."""
        return self.path / "validation.jsonl"

    @property
    def decisions(self) -> Path:
        """One line a decision."""
        return self.path / "decisions.jsonl"

    @property
    def dashboard(self) -> Path:
        """The page of the run, one file that opens from disk; a Trainer's starts share one."""
        return self.whole.path / "dashboard.html"

    @property
    def forecast(self) -> Path:
        """What traces predicted of its memory before the first step; not there where nothing was traced."""
        return self.path / "foresight.json"

    @property
    def tensorboard(self) -> Path:
        """Folder of event files.

        It lies beside the folders of runs: TensorBoard follows links, and would find what lies in a run a second time
        through ``current``. A run of an earlier version continues where its files are.
        """
        within = self.path / "tb"
        return within if within.is_dir() else self.path.parent / "tb" / self.path.name

    @property
    def trackers(self) -> Path:
        """What the run is called by experiment trackers; not there where none is told."""
        return self.path / "trackers.json"

    @property
    def validation(self) -> Path:
        """Folder of validation pictures."""
        return self.path / "validation"

    @property
    def undone(self) -> Path:
        """Folder of what was logged of steps that rollbacks have undone."""
        return self.path / "undone"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

    def write_options(self, text: str) -> None:
        """Keep the option file as given."""
        write_text_atomically(self.options_file, text)

    def read_config(self) -> dict[str, Any]:
        """Return the options as resolved, without the copies of those in ``training``.

        Where the file is missing or damaged, it is empty.
        """
        config = read_object(self.config)
        copied = config.get(TRAINING)
        return {key: value for key, value in config.items() if not (isinstance(copied, dict) and key in copied)}

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Keep the options as resolved."""
        write_json_atomically(self.config, dict(config))

    def rewind(self, step: int) -> None:
        """Drop what was recorded after ``step``, the one a resumed run continues from, and any half-written last line.

        Call it before reporters open the files. Each file is changed whole or not at all.
        """
        for path in (self.records, self.decisions, self.validations):
            _keep_until(path, step)

    def set_aside(self, step: int, number: int) -> None:
        """Keep what was recorded after ``step`` in files of its own: it is undone by a rollback of that number."""
        for path in (self.records, self.decisions, self.validations):
            start_bytes = length_until(path, step)
            if path.exists() and path.stat().st_size > start_bytes:
                self.undone.mkdir(exist_ok=True)
                write_atomically(
                    self.undone / f"{number}_{path.name}", partial(_copy, path, start=start_bytes, end=None)
                )


def _beginning_of(folder: Path) -> tuple[str, int] | tuple[()]:
    """Return when a run began, and as which of that second; nothing for a folder of another name."""
    name = re.fullmatch(r"(\d{8}_\d{6})(?:_(\d+))?", folder.name)
    return (name[1], int(name[2] or 1)) if name else ()


def _make_folder(base: Path) -> Path:
    # mkdir is what decides who comes first; looking before making would not.
    now = datetime.now().astimezone().strftime("%Y%m%d_%H%M%S")
    folder, number = base / now, 1
    while True:
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            folder = base / f"{now}_{number}"
        else:
            return folder


def _point(link: Path, target: str) -> None:
    """Let ``link`` lead to its neighbour ``target``: a link where the system allows it, else a file with its name."""
    temporary = link.with_name(f".{link.name}.{uuid4().hex}.tmp")
    try:
        temporary.symlink_to(target, target_is_directory=True)
        os.replace(temporary, link)
    except OSError:
        temporary.unlink(missing_ok=True)
        write_text_atomically(link, target + "\n")


def _keep_until(path: Path, step: int) -> None:
    """Cut from the end of a file of JSON lines what belongs to a later step than ``step``."""
    size_bytes = path.stat().st_size if is_log(path) else 0
    kept_bytes = length_until(path, step)
    if kept_bytes == size_bytes:
        return

    try:
        write_atomically(path, partial(_copy, path, start=0, end=kept_bytes))
    except OSError as error:
        if error.errno not in FULL:
            raise
        os.truncate(path, kept_bytes)  # there is no room for a copy, and this needs none


def _copy(path: Path, target: Path, *, start: int, end: int | None) -> None:
    """Copy the bytes of a file from ``start`` up to ``end``; ``None`` copies all that follows."""
    remaining = (path.stat().st_size if end is None else end) - start
    with path.open("rb") as source, target.open("wb") as copied:
        source.seek(start)
        while remaining and (block := source.read(min(remaining, 1 << 20))):
            copied.write(block)
            remaining -= len(block)


def length_until(path: Path, step: int) -> int:
    """Return the bytes of a file of JSON lines that hold what belongs to ``step`` or an earlier one; 0 without a file.

    Steps ascend within a file, so only the lines after that are read, from the last one backwards.
    """
    if not is_log(path) or not path.stat().st_size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = text.rfind(b"\n") + 1  # a line that was cut short has no newline
        while end:
            start = text.rfind(b"\n", 0, end - 1) + 1
            line_step = step_of_line(text[start:end])
            if line_step is not None and line_step <= step:
                break
            end = start
        return end
