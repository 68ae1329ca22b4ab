"""Models at the ends of epochs: each whole or not at all, and found again by name (D24)."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainauto.core.errors import InputError
from trainauto.core.records import Progress
from trainauto.engine.checkpoint_integrity import SUMS_FILE
from trainauto.tasks.finetune.epoch_models import EpochModels, chosen_epoch, steps_of

OF_EPOCH = 10


class Run:
    """Models of a run of ten conversations an epoch; what they hold is the step they were written after."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        data = SimpleNamespace(samples=range(OF_EPOCH))
        self.memory = SimpleNamespace(progress=Progress(), data=data, trained_samples=1)
        self.models = EpochModels(folder, self, self.write)
        self.written = 0

    def write(self, folder: Path) -> None:
        (folder / "weights").write_text(str(self.memory.progress.steps))
        self.written += 1

    def epoch_ends(self, steps: int, samples: int) -> bool:
        """Return whether a checkpoint is asked for."""
        control = SimpleNamespace(should_save=False)
        self.at(steps, samples).models.on_epoch_end(None, None, control)
        return control.should_save

    def at(self, steps: int, samples: int) -> "Run":
        self.memory.progress = Progress(steps=steps, samples=samples)
        return self


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_each_epoch_has_its_folder(run: Run) -> None:
    assert run.epoch_ends(3, 10)
    assert run.epoch_ends(6, 20)
    assert sorted(path.name for path in run.folder.iterdir()) == ["epoch_0", "epoch_1"]
    assert (run.folder / "epoch_1" / "weights").read_text() == "6"
    assert json.loads((run.folder / "epoch_1" / "progress.json").read_text()) == {"epoch": 1, "step": 6, "samples": 20}
    assert run.at(6, 20).models.finish() == run.folder / "epoch_1"
    assert run.written == 2


def test_a_run_that_ends_within_an_epoch_leaves_its_model(run: Run) -> None:
    """An epoch that is not whole writes none of its own accord, and the next end of it is another model."""
    run.epoch_ends(3, 10)
    assert not run.epoch_ends(4, 14)
    assert run.at(4, 14).models.finish() == run.folder / "epoch_1"
    assert steps_of(run.folder / "epoch_1") == 4
    run.epoch_ends(6, 20)
    assert (run.folder / "epoch_1" / "weights").read_text() == "6"
    assert steps_of(run.folder / "epoch_1") == 6


def test_a_resume_that_has_nothing_to_train_writes_nothing(run: Run) -> None:
    run.epoch_ends(3, 10)
    run.memory.trained_samples = 0
    assert not run.epoch_ends(3, 10)
    assert run.models.finish() == run.folder / "epoch_0"
    assert run.written == 1


def test_a_run_killed_behind_an_epoch_writes_its_model_when_it_is_resumed(run: Run) -> None:
    run.at(3, 10).models.on_train_begin(None, None, None)
    assert steps_of(run.folder / "epoch_0") == 3
    run.models.on_train_begin(None, None, None)
    run.at(4, 14).models.on_train_begin(None, None, None)
    assert run.written == 1


def test_a_step_whose_checkpoint_is_there_is_not_saved_twice(run: Run) -> None:
    """A kill in the second save would leave files of both."""
    checkpoint = run.folder / "checkpoint-3"
    checkpoint.mkdir()
    (checkpoint / SUMS_FILE).write_text("{}")
    assert not run.epoch_ends(3, 10)
    assert run.epoch_ends(6, 20)


def test_a_model_that_cannot_be_written_leaves_the_one_before(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.at(2, 4).models.finish()

    def fails(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise OSError("no room")

    monkeypatch.setattr(run.models, "_write", fails)
    with pytest.raises(OSError, match="no room"):
        run.epoch_ends(3, 10)
    assert [path.name for path in run.folder.iterdir()] == ["epoch_0"]
    assert (run.folder / "epoch_0" / "weights").read_text() == "2"


def test_what_a_killed_run_left_half_written_is_removed(tmp_path: Path) -> None:
    for name in (".epoch_1.0123abcd.tmp", "epoch_0", "checkpoint-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").touch()
    Run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-3", "epoch_0"]


def test_what_does_not_say_its_step(tmp_path: Path) -> None:
    assert steps_of(tmp_path) == 0
    for text in ("", "{}", "[]", '{"step": null}'):
        (tmp_path / "progress.json").write_text(text)
        assert steps_of(tmp_path) == 0


def test_an_epoch_is_found_by_its_number(tmp_path: Path) -> None:
    for name in ("epoch_0", "epoch_2", "epoch_10", "checkpoint-30", "epoch_x"):
        (tmp_path / name).mkdir()
    (tmp_path / "epoch_11").touch()
    for which, name in {"latest": "epoch_10", "best": "epoch_10", "2": "epoch_2", "epoch_0": "epoch_0"}.items():
        assert chosen_epoch(tmp_path, which, {}) == tmp_path / name
    for which in ("1", "epoch_3", "first", ""):
        with pytest.raises(InputError, match=f"there is no epoch '{which}' in ") as caught:
            chosen_epoch(tmp_path, which, {})
        assert caught.value.problems[0].advice == "There are epoch_0, epoch_2, epoch_10."


@pytest.mark.parametrize("folder", [".", "gone"])
def test_a_run_that_has_no_model_yet(tmp_path: Path, folder: str) -> None:
    with pytest.raises(InputError, match="has no model of an epoch yet") as caught:
        chosen_epoch(tmp_path / folder, "latest", {})
    assert "after each epoch" in caught.value.problems[0].advice


def test_the_best_epoch_is_the_one_that_measured_least(run: Run) -> None:
    for epoch in range(3):
        run.epoch_ends(3 * (epoch + 1), 10 * (epoch + 1))
    measured = {3: 0.5, 6: 0.2, 9: 0.4, 7: 0.1}  # none was written after step 7
    assert chosen_epoch(run.folder, "best", measured) == run.folder / "epoch_1"
    assert chosen_epoch(run.folder, "best", {}) == run.folder / "epoch_2"
