"""Checkpoints of a Trainer that a kill or a disk has hurt: told from whole ones, in words."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.trainers import Watched, rows, tiny_model, watched
from trainauto.core.errors import CheckpointError

OPTIONS: dict[str, Any] = {"per_device_train_batch_size": 4, "num_train_epochs": 1, "save_strategy": "steps"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints after each of five steps."""
    folder = tmp_path_factory.mktemp("saved")
    watched(folder, tiny_model(), rows(), save_steps=1, **OPTIONS).train()
    return folder


@pytest.fixture
def folder(tmp_path: Path, saved: Path) -> Path:
    """A copy of those after steps 2 and 3."""
    for step in (2, 3):
        shutil.copytree(saved / f"checkpoint-{step}", tmp_path / f"checkpoint-{step}")
    return tmp_path


def resumed(folder: Path, what: Any = True) -> Watched:
    trainer: Watched = watched(folder, tiny_model(seed=1), rows(), save_steps=99, **OPTIONS)
    trainer.train(resume_from_checkpoint=what)
    return trainer


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def lose_all_but_ours(folder: Path) -> None:
    for file in folder.iterdir():
        if file.name != "trainauto.pt":
            file.unlink()


def lose_what_is_last(folder: Path) -> None:
    for name in ("sums.json", "trainer_state.json"):
        (folder / name).unlink(missing_ok=True)


DAMAGES = {
    "killed before transformers began": (lose_all_but_ours, "interrupted"),
    "killed before its end": (lose_what_is_last, "interrupted"),
    "cut weights": (lambda folder: cut(folder / "model.safetensors"), "model.safetensors has"),
    "cut optimizer": (lambda folder: cut(folder / "optimizer.pt"), "optimizer.pt has"),
    "our own cut": (lambda folder: cut(folder / "trainauto.pt"), "trainauto.pt has"),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_the_newest_whole_one_is_taken(folder: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """B18: what is left aside is named, and why."""
    damage, words = DAMAGES[how]
    damage(folder / "checkpoint-3")
    with caplog.at_level(logging.WARNING):
        trainer = resumed(folder)
    assert len(trainer.trained()) == 12  # after step 2 of 5, in fours
    (line,) = [line for line in caplog.messages if "left aside" in line]
    assert "checkpoint-3" in line
    assert words in line
    assert line.endswith("resuming from checkpoint-2 instead")


def test_a_damaged_one_that_is_named_is_refused(folder: Path) -> None:
    """B18"""
    cut(folder / "checkpoint-3" / "optimizer.pt")
    with pytest.raises(CheckpointError, match=r"checkpoint-3 cannot be resumed from: optimizer.pt has \d+ of \d+"):
        resumed(folder, folder / "checkpoint-3")


def test_where_none_is_whole_each_is_named(folder: Path) -> None:
    """B18"""
    for step in (2, 3):
        cut(folder / f"checkpoint-{step}" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"(?s)no checkpoint.*checkpoint-3: model.*checkpoint-2: model"):
        resumed(folder)


def test_one_killed_before_its_sums_were_noted_is_whole(folder: Path) -> None:
    """Transformers may have deleted older ones by then."""
    (folder / "checkpoint-3" / "sums.json").unlink()
    assert len(resumed(folder).trained()) == 8


@pytest.mark.parametrize("given", [None, False])
def test_nothing_is_asked_for(folder: Path, given: Any) -> None:
    assert len(resumed(folder, given).trained()) == 20


def test_sums_of_a_checkpoint_written_anew_are_its_own(folder: Path) -> None:
    """B18: a run resumed from an earlier one writes the later ones again."""
    cut(folder / "checkpoint-3" / "optimizer.pt")
    watched(folder, tiny_model(), rows(), save_steps=1, **OPTIONS).train(resume_from_checkpoint=True)
    assert resumed(folder, folder / "checkpoint-3").trained()
