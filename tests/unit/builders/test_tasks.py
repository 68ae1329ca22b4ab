"""Which task an option file is of, and what it needs."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.commands import tiny_options, write_options
from tests.integration.text_runs import text_options
from trainauto.builders import tasks
from trainauto.core.errors import InputError
from trainauto.options.load import load_options


def test_a_task_is_that_of_its_file(tmp_path: Path) -> None:
    texts = load_options(write_options(tmp_path / "texts.yml", text_options(tmp_path)))
    images = load_options(write_options(tmp_path / "images.yml", tiny_options(tmp_path)))
    assert tasks.texts_of(texts) is not None
    assert tasks.texts_of(images) is None
    assert tasks.images_of(images).options is images.options
    with pytest.raises(TypeError, match="not of super-resolution"):
        tasks.images_of(texts)


@pytest.mark.parametrize("lacking", ["transformers", "peft"])
def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    monkeypatch.setattr(tasks, "find_spec", lambda name: None if name == lacking else find_spec(name))
    adapted = text_options(tmp_path, model={"lora": {"r": 2}})
    with pytest.raises(InputError, match=rf"task: text needs {lacking}, which is not installed") as caught:
        tasks.texts_of(load_options(write_options(tmp_path / "texts.yml", adapted)))
    assert caught.value.problems[0].advice == "pip install 'trainauto[huggingface]'"
    assert caught.value.problems[0].place.text == "task: text"
