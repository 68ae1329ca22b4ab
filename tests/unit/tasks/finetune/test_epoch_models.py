"""Models at the ends of epochs: each whole or not at all, and found again by name (D24)."""

import json
from pathlib import Path

import pytest

from trainauto.core.errors import InputError
from trainauto.core.records import Progress
from trainauto.tasks.finetune.epoch_models import chosen_epoch, steps_of, write_epoch


class Run:
    """Models of a run; what they hold is the step they were written after."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0

    def epoch_ends(self, epoch: int, steps: int, samples: int = 0) -> Path:
        """Write the model of an epoch after so many steps, and return its folder."""

        def write(folder: Path) -> None:
            (folder / "weights").write_text(str(steps))
            self.written += 1

        return write_epoch(self.folder, epoch, Progress(steps=steps, samples=samples), write)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_each_epoch_has_its_folder(run: Run) -> None:
    assert run.epoch_ends(0, 3, 10) == run.folder / "epoch_0"
    run.epoch_ends(1, 6, 20)
    assert sorted(path.name for path in run.folder.iterdir()) == ["epoch_0", "epoch_1"]
    assert (run.folder / "epoch_1" / "weights").read_text() == "6"
    assert json.loads((run.folder / "epoch_1" / "progress.json").read_text()) == {"epoch": 1, "step": 6, "samples": 20}


def test_one_that_is_there_is_replaced(run: Run) -> None:
    """A run that ended within an epoch has left another model, and a resume may have come to one at the same step."""
    run.epoch_ends(1, 4)
    run.epoch_ends(1, 4)
    assert run.written == 2
    run.epoch_ends(1, 6)
    assert (run.folder / "epoch_1" / "weights").read_text() == "6"
    assert steps_of(run.folder / "epoch_1") == 6


def test_a_model_that_cannot_be_written_leaves_the_one_before(run: Run) -> None:
    run.epoch_ends(0, 2)

    def fails(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_epoch(run.folder, 0, Progress(steps=3), fails)
    assert [path.name for path in run.folder.iterdir()] == ["epoch_0"]
    assert (run.folder / "epoch_0" / "weights").read_text() == "2"


def test_what_does_not_say_its_step(tmp_path: Path) -> None:
    assert steps_of(tmp_path) == 0
    for text in ("", "{}", "[]", '{"step": null}'):
        (tmp_path / "progress.json").write_text(text)
        assert steps_of(tmp_path) == 0


def test_an_epoch_is_found_by_its_number(tmp_path: Path) -> None:
    for name in ("epoch_0", "epoch_2", "epoch_10", "step_00000030", "epoch_x"):
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
        run.epoch_ends(epoch, 3 * (epoch + 1))
    measured = {3: 0.5, 6: 0.2, 9: 0.4, 7: 0.1}  # none was written after step 7
    assert chosen_epoch(run.folder, "best", measured) == run.folder / "epoch_1"
    assert chosen_epoch(run.folder, "best", {}) == run.folder / "epoch_2"
