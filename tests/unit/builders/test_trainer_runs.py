"""What holds for all option files whose runs go through a Trainer."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.commands import train_loaded, write_options
from tests.integration.multitask_runs import multitask_options
from trainauto.builders import trainer_runs
from trainauto.core.errors import InputError
from trainauto.forecast import task as table
from trainauto.options.load import load_options


@pytest.mark.parametrize("lacking", ["transformers", "matplotlib"])
def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    monkeypatch.setattr(table, "find_spec", lambda name: None if name == lacking else find_spec(name))
    loaded = load_options(write_options(tmp_path / "digits.yml", multitask_options()))
    with pytest.raises(InputError, match=f"task: multitask needs {lacking}, which is not installed") as caught:
        table.task_of(loaded).check_packages(loaded)
    assert caught.value.problems[0].advice == "pip install 'trainauto[multitask]'"


def test_one_process(tmp_path: Path) -> None:
    loaded = load_options(write_options(tmp_path / "digits.yml", multitask_options()))
    with pytest.raises(InputError, match="an option file of several tasks is trained in one process"):
        train_loaded(loaded, launcher="pytorch")


def test_the_newest_checkpoint_of_a_trainer(tmp_path: Path) -> None:
    assert trainer_runs.newest_checkpoint(tmp_path) == 0
    for name in ("checkpoint-9", "checkpoint-10", "checkpoint-best", "memory"):
        (tmp_path / name).mkdir()
        (tmp_path / name / trainer_runs.WRITTEN_LAST).touch()
    assert trainer_runs.newest_checkpoint(tmp_path) == 10


def test_a_checkpoint_that_was_killed_in_the_middle_is_none(tmp_path: Path) -> None:
    """Where it is the first, the run begins anew."""
    (tmp_path / "checkpoint-4").mkdir()
    assert trainer_runs.newest_checkpoint(tmp_path) == 0
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / trainer_runs.WRITTEN_LAST).touch()
    assert trainer_runs.newest_checkpoint(tmp_path) == 2
