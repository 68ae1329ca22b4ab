"""Trackers of option files: what is refused before anything is built, and what becomes of the rest."""

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.integration.commands import merged, tiny_options, train_loaded, write_options
from tests.integration.finetune_runs import finetune_options
from tests.integration.multitask_runs import multitask_options
from tests.integration.text_runs import text_options
from trainauto.build import build_run
from trainauto.builders import trackers
from trainauto.builders.trackers import check_trackers, tracker_sinks, tracker_words
from trainauto.core.errors import InputError
from trainauto.options import tracker_options
from trainauto.options.load import LoadedOptions, load_options
from trainauto.options.tracker_options import TRACKERS, TrackerOptions
from trainauto.reporting.trackers.sink import Trackers
from trainauto.storage.run_directory import RunDirectory

ALL = {"wandb": {"project": "a"}, "mlflow": {"experiment": "b"}, "trackio": {"project": "c"}}


def loaded_with(folder: Path, logger: Any, base: dict[str, Any] | None = None) -> LoadedOptions[Any]:
    options = merged(base or tiny_options(folder), {"logger": logger})
    return load_options(write_options(folder / "x.yml", options))


def problems(folder: Path, logger: Any, base: dict[str, Any] | None = None) -> str:
    try:
        loaded = loaded_with(folder, logger, base)
        check_trackers(loaded, loaded.options.logger)
    except InputError as error:
        return str(error)
    return ""


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(trackers, "_is_installed", lambda name: name in names)


@pytest.mark.parametrize("missing", TRACKERS)
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    installed(monkeypatch, *(name for name in TRACKERS if name != missing))
    text = problems(tmp_path, ALL)
    assert f"{missing} is not installed" in text
    assert f"pip install 'trainauto[{missing}]'" in text
    assert text.count("is not installed") == 1


def test_all_that_are_missing_are_named_at_once_where_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch)
    text = problems(tmp_path, ALL)
    lines = (tmp_path / "x.yml").read_text().splitlines()
    for name in TRACKERS:
        assert f"x.yml:{lines.index(f'  {name}:') + 2}" in text or f"x.yml:{lines.index(f'  {name}:') + 1}" in text
        assert f"{name} is not installed" in text


def test_a_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """wandb makes a folder of its own name in the working directory, which Python takes for a package."""
    (tmp_path / "wandb_of_a_run").mkdir()
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert not trackers._is_installed("wandb_of_a_run")
    assert trackers._is_installed("a_package")


def test_a_run_is_refused_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    installed(monkeypatch)
    wanted = {"trackio": {"project": "c"}}
    with pytest.raises(InputError, match="trackio is not installed"), build_run(loaded_with(tmp_path, wanted)):
        pass
    for base in (multitask_options(), finetune_options(tmp_path, tmp_path)):
        with pytest.raises(InputError, match="trackio is not installed"):
            train_loaded(loaded_with(tmp_path, wanted, base))
    assert not (tmp_path / "experiments").exists()


def test_a_file_without_trackers_asks_for_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    run = RunDirectory(tmp_path)
    # As files of BasicSR have it that use no wandb.
    for logger in ({}, {"wandb": {"project": None}}, dict.fromkeys(TRACKERS)):
        loaded = loaded_with(tmp_path, logger)
        check_trackers(loaded, loaded.options.logger)
        assert tracker_sinks(loaded.options.logger, run, tmp_path, "demo", 1) == []
        assert tracker_words(loaded.options.logger, tmp_path) == ""


@pytest.mark.parametrize(
    ("logger", "words", "advice"),
    [
        ({"mlflow": {"experiment": "a", "tracking_uri": "mlruns"}}, "mlruns is no address", "sqlite:///FILE.db"),
        ({"trackio": {"project": "a", "server": "x"}}, "x is no place that trackio knows", "USER/NAME"),
        ({"wandb": {"project": "../a"}}, "text that matches", "project"),
        ({"wandb": {}}, "project", "project"),
        ({"wandb": {"project": "a", "mode": "onlin"}}, "one of 'offline' or 'online'", "online"),
        ({"wandb": {"project": "a", "resume_id": None}}, "resume_id", "--auto_resume goes on with the same run"),
        ({"wandb": {"project": "a", "entity": "us"}}, "entity", "WANDB_ENTITY"),
        ({"mlflow": {"experiment": "a\x07"}}, "text that matches", "experiment"),
        ({"trackio": {"project": "a", "space_id": "us/x"}}, "space_id", "server"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logger: Any, words: str, advice: str
) -> None:
    installed(monkeypatch, *TRACKERS)
    text = problems(tmp_path, logger)
    assert words in text
    assert advice in text


def test_words_of_other_tools_are_known(tmp_path: Path) -> None:
    base = tiny_options(tmp_path)
    assert "Write it under logger." in problems(tmp_path, {}, {**base, "wandb": {"project": "a"}})
    tuned = merged(finetune_options(tmp_path, tmp_path), {"training": {"report_to": "wandb"}})
    assert "logger: {wandb: {project: NAME}} at the top level" in problems(tmp_path, {}, tuned)
    assert "logging_steps" in problems(tmp_path, {"print_freq": 3}, finetune_options(tmp_path, tmp_path))


@pytest.mark.parametrize("kind", ["images", "texts", "tasks", "fine-tuning"])
def test_files_of_every_task_take_them(tmp_path: Path, kind: str) -> None:
    base = {
        "images": tiny_options(tmp_path),
        "texts": text_options(tmp_path),
        "tasks": multitask_options(),
        "fine-tuning": finetune_options(tmp_path, tmp_path),
    }[kind]
    loaded = loaded_with(tmp_path, ALL, base)
    (sink,) = tracker_sinks(loaded.options.logger, RunDirectory(tmp_path / "1"), tmp_path, "demo", 1)
    assert isinstance(sink, Trackers)
    words = tracker_words(loaded.options.logger, Path("runs"))
    assert words == "wandb offline in runs/wandb, mlflow in runs/mlflow.db, trackio on this machine"


def test_every_key_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = [
        section
        for section in vars(tracker_options).values()
        if isinstance(section, type)
        and issubclass(section, BaseModel)
        and section.__module__ == tracker_options.__name__
    ]
    seen: set[tuple[str, str]] = set()
    options = TrackerOptions.model_validate(ALL)
    plain = object.__getattribute__

    def reading(self: BaseModel, name: str) -> Any:
        if name in type(self).model_fields:
            seen.add((type(self).__name__, name))
        return plain(self, name)

    for section in sections:
        monkeypatch.setattr(section, "__getattribute__", reading, raising=False)
    tracker_sinks(options, RunDirectory(tmp_path / "1"), tmp_path, "demo", 1)
    assert seen == {(section.__name__, key) for section in sections for key in section.model_fields}
    assert len(seen) == 9
