"""Which task an option file is of, and what it needs."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.commands import tiny_options, write_options
from tests.integration.text_runs import text_options
from trainauto.core.errors import InputError
from trainauto.forecast import task as table
from trainauto.forecast.task import task_of
from trainauto.options.load import load_options
from trainauto.options.schema import Options
from trainauto.tasks.sr.task import SuperResolution
from trainauto.tasks.text.task import LanguageModels


def test_a_task_is_that_of_its_file(tmp_path: Path) -> None:
    texts = load_options(write_options(tmp_path / "texts.yml", text_options(tmp_path)))
    images = load_options(write_options(tmp_path / "images.yml", tiny_options(tmp_path)))
    assert isinstance(task_of(texts), LanguageModels)
    assert isinstance(task_of(images), SuperResolution)
    assert images.of(Options).options is images.options
    with pytest.raises(TypeError, match="is of language models"):
        texts.of(Options)


@pytest.mark.parametrize("lacking", ["transformers", "peft"])
def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    monkeypatch.setattr(table, "find_spec", lambda name: None if name == lacking else find_spec(name))
    loaded = load_options(write_options(tmp_path / "texts.yml", text_options(tmp_path, model={"lora": {"r": 2}})))
    with pytest.raises(InputError, match=rf"task: text needs {lacking}, which is not installed") as caught:
        task_of(loaded).check_packages(loaded)
    assert caught.value.problems[0].advice == "pip install 'trainauto[huggingface]'"
    assert caught.value.problems[0].place.text == "task: text"
