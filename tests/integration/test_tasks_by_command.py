"""Each task by each command: what trains, what resumes, and where a command refuses, what there is instead.

The table is the contract of :class:`trainauto.forecast.task.Task`. A task of a plugin stands in it beside ours.
"""

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import ROOT
from tests.integration.commands import Ended, command, plugins_forgotten, step_records, tiny_options, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from tests.integration.multitask_runs import multitask_options
from tests.integration.text_runs import text_options, write_texts
from trainauto.forecast.task import task_of
from trainauto.options.load import load_options
from trainauto.options.tasks import TASKS

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_task"
WITHOUT_VALIDATION = {"val_enabled": False}

OF_IMAGES_ALONE = "is for networks of super-resolution, and this file is of {words}"

CELLS: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "super_resolution": {
        "train": (0, "training finished"),
        "resume": (0, "training finished"),
        "replay": (0, "every loss equals the log's"),
        "validate": (0, "can be trained; nothing of this was saved"),
        "plan": (0, "expected: likely peak memory of a step"),
        "doctor": (0, "it can be built: compact x2"),
        "report": (0, "plan changes: 0"),
        "test": (0, "psnr"),
        "export": (0, "compact x2"),
        "upscale": (0, "1 picture"),
    },
    "text": {
        "train": (0, "training finished"),
        "resume": (0, "training finished"),
        "replay": (0, "every loss equals the log's"),
        "validate": (0, "can be trained; nothing of this was saved"),
        "plan": (0, "tokens of the longest sample of a batch"),
        "doctor": (0, " texts"),
        "report": (0, "plan changes: 0"),
        "test": (0, "perplexity"),
        "export": (0, "gpt2 of step"),
        "upscale": (2, OF_IMAGES_ALONE),
    },
    "multitask": {
        "train": (0, "training finished"),
        "resume": (0, "training finished"),
        "replay": (0, "every loss equals the log's"),
        "validate": (0, "can be trained; nothing of this was saved"),
        "plan": (0, "expected: likely peak memory of a step"),
        "doctor": (0, "it can be built: DigitsModel"),
        "report": (0, "plan changes: 0"),
        "test": (0, "accuracy_T1"),
        "export": (0, "DigitsModel of step"),
        "upscale": (2, OF_IMAGES_ALONE),
    },
    "finetune": {
        "train": (0, "training finished"),
        "resume": (0, "training finished"),
        "replay": (0, "every loss equals the log's"),
        "validate": (0, "can be trained; nothing of this was saved"),
        "plan": (0, "expected: likely peak memory of a step"),
        "doctor": (0, "model"),
        "report": (0, "plan changes: 0"),
        "test": (0, "exact"),
        "export": (0, "the whole model of step"),
        "upscale": (2, OF_IMAGES_ALONE),
    },
    "image_classes": {
        "train": (0, "training finished"),
        "resume": (0, "training finished"),
        "replay": (0, "every loss equals the log's"),
        "validate": (0, "can be trained; nothing of this was saved"),
        "plan": (0, "expected: likely peak memory of a step"),
        "doctor": (0, "it can be built: classifier, width 4"),
        "report": (0, "plan changes: 0"),
        "test": (0, "accuracy"),
        "export": (0, "classifier of step"),
        "upscale": (2, OF_IMAGES_ALONE),
    },
}
"""Exit code and some words of every command, where ``{words}`` is what a person calls the task."""


def test_the_page_of_commands_shows_the_table() -> None:
    lines = [line.strip("| ").split(" | ") for line in (ROOT / "docs" / "commands.md").read_text().splitlines()]
    shown = {name.strip("`"): line[1:] for line in lines if len(line) == 5 for name in line[0].split(", ")}
    ours = [cells for task, cells in CELLS.items() if task != "image_classes"]
    for name in ours[0].keys() - {"train", "resume"}:
        assert shown[name] == ["no" if cells[name][0] else "yes" for cells in ours], name


def images(folder: Path, write_images: Callable[..., Path]) -> dict[str, Any]:
    return tiny_options(write_images("gt", 2), train={"total_iter": 3}, val={"val_freq": 3})


def texts(folder: Path, _write_images: Callable[..., Path]) -> dict[str, Any]:
    return text_options(write_texts(folder), train={"total_epochs": None, "total_iter": 3})


def several(_folder: Path, _write_images: Callable[..., Path]) -> dict[str, Any]:
    return multitask_options(train={"total_epochs": None, "total_iter": 3})


def conversations(folder: Path, _write_images: Callable[..., Path]) -> dict[str, Any]:
    options = finetune_options(write_model(folder / "model"), write_chats(folder / "chats.jsonl"))
    return options | {"dataset": options["dataset"] | {"val": str(write_chats(folder / "aside.jsonl", 3, 20))}}


def classes(folder: Path, _write_images: Callable[..., Path]) -> dict[str, Any]:
    """Return the options of the example, whose two files lie beside."""
    for file in EXAMPLE.glob("image_classes*.py"):
        shutil.copy(file, folder)
    specification = importlib.util.spec_from_file_location("make_digits", EXAMPLE / "make_digits.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    module.write_digits(folder / "data" / "digits", 90)
    options = yaml.safe_load((EXAMPLE / "digits.yml").read_text())
    train = options["train"] | {"total_iter": 3, "batch_size": 8}
    changes = {"name": "tiny", "num_threads": 1, "width": 4, "train": train, "val_freq": 3}
    return {**options, **changes, "training_automations": {"enabled": False}, "memory": {}}


MADE = {
    "super_resolution": (images, "experiments", "train:total_iter=6"),
    "text": (texts, "experiments", "train:total_iter=6"),
    "multitask": (several, "experiments", "train:total_iter=6"),
    "finetune": (conversations, "training_output", "training:num_train_epochs=3"),
    "image_classes": (classes, "experiments", "train:total_iter=6"),
}
"""For each task what makes its options, where its runs go, and what makes a run longer."""


def logged_steps(run: Path) -> list[int]:
    """Return the steps in a run's log."""
    return [record["step"] for record in step_records(run)]


def findings_of(file: Path) -> Ended:
    """Return what `doctor` finds of a run; what it finds of the machine is the same for every task."""
    with plugins_forgotten(file.parent):
        loaded = load_options(file)
        found = list(task_of(loaded).findings(loaded, {}))
    broken = [finding for finding in found if finding.state == "broken"]
    return Ended(int(bool(broken)), "\n".join(f"{finding.name} {finding.fact}" for finding in found), "")


@pytest.mark.parametrize("task", CELLS)
def test_every_command(
    task: str, tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, root, longer = MADE[task]
    picture = write_images("pictures", 1) / "image_000.png"
    write_options(tmp_path / "run.yml", make(tmp_path, write_images))
    named = ("-opt", "run.yml")
    said = {"train": command("train", *named, cwd=tmp_path)}
    name = "tiny" if root == "experiments" else ""
    run = str((Path(root) / name / "current").resolve())
    first_steps = logged_steps(Path(run))
    said |= {
        "resume": command("train", *named, "--auto_resume", "--force_yml", longer, cwd=tmp_path),
        "replay": command("replay", run, cwd=tmp_path),
        "validate": command("validate", *named, cwd=tmp_path),
        "plan": command("plan", *named, "--card", "T4", cwd=tmp_path),
        "doctor": findings_of(tmp_path / "run.yml"),
        "report": command("report", run, cwd=tmp_path),
        "test": command("test", run, cwd=tmp_path),
        "export": command("export", run, cwd=tmp_path),
        "upscale": command("upscale", run, str(picture), "enlarged.png", cwd=tmp_path),
    }
    words = TASKS[task].words if task in TASKS else "classes of images"
    wrong = []
    for name, (code, wanted) in CELLS[task].items():
        ended, phrase = said[name], wanted.format(words=words)
        if ended.returncode != code or phrase not in " ".join((ended.stdout + ended.stderr).split()):
            wrong.append(
                f"{name}: {ended.returncode}, without '{phrase}':\n{ended.stdout[-1500:]}{ended.stderr[-1500:]}"
            )
    assert not wrong, "\n\n".join(wrong)
    steps = logged_steps(Path(run))
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert steps[-1] > first_steps[-1]
