"""Processors of vision-language models from a folder, without torchvision (issue 20, part 3; D28)."""

from pathlib import Path

import pytest
from PIL import Image

from tests.tokenizers import fast_tokenizer
from tests.vision_models import FAMILIES, model_of, processor_of
from trainauto.core.errors import InputError
from trainauto.tasks.finetune.processors import load_processor


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    family = request.param
    processor_of(family).save_pretrained(tmp_path)
    model_of(family).config.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("folder", FAMILIES, indirect=True)
def test_a_saved_processor_comes_back_whole(folder: Path, request: pytest.FixtureRequest) -> None:
    """AutoProcessor returns a tokenizer for some of them, and says nothing."""
    family = request.node.callspec.params["folder"]
    given, loaded = processor_of(family), load_processor(folder)
    assert loaded.chat_template == given.chat_template
    text = f"a {given.boi_token if hasattr(given, 'boi_token') else given.image_token} b"
    picture = Image.new("RGB", (16, 16), "red")
    ours, theirs = (each(text=[text], images=[[picture]], return_tensors="pt") for each in (loaded, given))
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in ours)


@pytest.mark.parametrize("folder", ["qwen3_vl"], indirect=True)
def test_pictures_are_reduced_to_so_many_pixels(folder: Path) -> None:
    picture = Image.new("RGB", (64, 64), "red")

    def patches(max_pixels: int) -> int:
        processor = load_processor(folder, max_pixels=max_pixels)
        return len(processor(text=[processor.image_token], images=[[picture]], return_tensors="pt")["pixel_values"])

    assert patches(16 * 16) == 4
    assert patches(64 * 64) == 64


@pytest.mark.parametrize("folder", ["llava"], indirect=True)
def test_pixels_of_pictures_of_one_size_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"max_pixels is nothing to a CLIPImageProcessor.*\n.*leave max_pixels out"):
        load_processor(folder, max_pixels=1000)


@pytest.mark.parametrize("folder", ["llava"], indirect=True)
def test_a_template_of_ones_own(folder: Path) -> None:
    (folder / "mine.jinja").write_text("{{ messages | length }}")
    assert load_processor(folder, chat_template=folder / "mine.jinja").chat_template == "{{ messages | length }}"
    with pytest.raises(InputError, match="cannot be read"):
        load_processor(folder, chat_template=folder / "none.jinja")


def test_a_language_model_is_none(tmp_path: Path) -> None:
    from transformers import LlamaConfig

    fast_tokenizer().save_pretrained(tmp_path)
    LlamaConfig(vocab_size=32).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="has no processor for pictures"):
        load_processor(tmp_path)
