"""A task that a plugin brings: found by the file that names it, before anything else of the file is checked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import plugins_forgotten
from trainauto.core.errors import InputError
from trainauto.forecast.task import task_of
from trainauto.options.load import load_options
from trainauto.options.tasks import TaskOptions, kind_of, register_task

PLUGIN = """
from typing import Literal

from trainauto.commands.engine_task import EngineTask
from trainauto.options.fields import option
from trainauto.options.run_options import RunOptions, RunTraining
from trainauto.options.tasks import TaskOptions, register_task


class Classification(RunOptions):
    task: Literal["classes"] = option(..., "What is learned.")
    classes: int = option(10, "How many there are.")


class ClassesTask(EngineTask[Classification]):
    smaller = "a smaller batch"
    parts = fake = first_plan = plan = None


register_task(TaskOptions("classes", "classes of images", Classification, RunTraining, "class_plugin:ClassesTask"))
"""
FILE = "name: some\ntask: classes\nplugins: [class_plugin]\ntrain: {total_iter: 3}\n"


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """Yield a file of the plugin's task; what the plugin registers is forgotten afterwards."""
    (tmp_path / "class_plugin.py").write_text(PLUGIN)
    (tmp_path / "run.yml").write_text(FILE)
    with plugins_forgotten(tmp_path):
        yield tmp_path / "run.yml"


def test_a_task_of_a_plugin_is_found(file: Path) -> None:
    loaded = load_options(file, ["classes=4"])
    assert (kind_of(loaded.options).words, loaded.options.model_dump()["classes"]) == ("classes of images", 4)
    assert task_of(loaded).smaller == "a smaller batch"
    with pytest.raises(InputError, match="replay repeats no runs of classes"):
        task_of(loaded).sample_options(loaded)


def test_its_options_are_checked(file: Path) -> None:
    with pytest.raises(InputError, match="unknown key 'clases'"):
        load_options(file, ["clases=4"])


def test_without_the_plugin_there_is_no_such_task(file: Path) -> None:
    with pytest.raises(InputError, match="there is no task 'classes'"):
        load_options(file, ["plugins=[]"])


def test_a_plugin_that_fails_is_named_where_it_stands(file: Path) -> None:
    (file.parent / "class_plugin.py").write_text("1 / 0")
    with pytest.raises(InputError, match="'class_plugin' failed to import: ZeroDivisionError") as caught:
        load_options(file)
    assert caught.value.problems[0].place.line == 3


def test_two_tasks_of_one_name(file: Path) -> None:
    loaded = load_options(file)
    known = kind_of(loaded.options)
    register_task(known)  # imported a second time
    with pytest.raises(ValueError, match="there is a task 'classes' already"):
        register_task(TaskOptions("classes", "others", known.model, known.train, "other:Task"))
