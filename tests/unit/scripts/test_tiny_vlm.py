"""A small vision-language model and its data come from nothing and are what a fine-tuning takes (issue 20, part 3)."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
import tiny_vlm

from trainauto.tasks.finetune.conversation_files import read_conversations
from trainauto.tasks.finetune.conversation_samples import ConversationSamples, for_model
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.encoding import ConversationEncoder
from trainauto.tasks.finetune.processors import load_processor

PAIRS = len(tiny_vlm.COLOURS) * len(tiny_vlm.SHAPES)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_vlm.make_all(folder, 3, PAIRS, PAIRS)
    return folder


@pytest.fixture(scope="module")
def processor(made: Path) -> Any:
    return load_processor(made / "model")


def conversations(made: Path, name: str) -> list[Conversation]:
    return read_conversations(str(made / name), set_name="tiny")


def answers(made: Path, name: str) -> list[str]:
    return [each.turns[-1].text for each in conversations(made, name)]


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_its_data_say_what_is_shown_in_both_wordings(made: Path) -> None:
    pairs = [(colour, shape) for colour in tiny_vlm.COLOURS for shape in tiny_vlm.SHAPES]
    assert answers(made, "train") == answers(made, "val") == [f"a {colour} {shape}" for colour, shape in pairs]
    reworded = [f"It shows a {shape}, coloured {colour}." for colour, shape in pairs]
    assert answers(made, "reworded_train.jsonl") == answers(made, "reworded_val.jsonl") == reworded
    chats = conversations(made, "chats.jsonl")
    assert [len(chat.images) for chat in chats] == [0, 1, 2] * 4
    assert len({image.open(chat.place).size for chat in chats for image in chat.images}) > 3


def test_no_picture_comes_twice(made: Path) -> None:
    shown = [image for name in ("train", "val") for each in conversations(made, name) for image in each.images]
    assert len({image.open("").tobytes() for image in shown}) == 2 * PAIRS


def test_a_picture_that_was_drawn_before_is_drawn_anew(tmp_path: Path) -> None:
    first = tiny_vlm.make_pictures(tmp_path / "first", 0, 2)
    second = tiny_vlm.make_pictures(tmp_path / "second", 0, 2, without=first)
    assert not set(files(tmp_path / "first").values()) & {each.file.read_bytes() for each in second}


def test_a_seed_makes_the_same_model_and_pictures(made: Path, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    tiny_vlm.make_all(tmp_path, 3, PAIRS, PAIRS)
    assert files(tmp_path) == files(made)
    assert torch.equal(torch.random.get_rng_state(), before)
    tiny_vlm.make_model(4, tmp_path / "other")
    assert files(tmp_path / "other").keys() == files(made / "model").keys()
    assert files(tmp_path / "other")["model.safetensors"] != files(made / "model")["model.safetensors"]


def test_the_model_learns_from_every_kind_of_conversation(made: Path, processor: Any) -> None:
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(made / "model")
    assert type(model).__name__ == "Qwen3VLForConditionalGeneration"
    assert sum(weight.numel() for weight in model.parameters()) < 600_000
    encoder, samples = ConversationEncoder(processor), ConversationSamples(processor.tokenizer.pad_token_id, "right")
    kinds = [
        conversations(made, "train")[0],
        conversations(made, "reworded_val.jsonl")[0],
        *conversations(made, "chats.jsonl")[:3],
    ]
    batch = samples.batch([encoder.encode(each) for each in kinds])
    loss = model(**for_model(batch)).loss
    loss.backward()
    assert 0 < loss.detach() < 20
    assert all(weight.grad is not None for weight in model.parameters())


def test_every_word_of_the_data_is_a_token(processor: Any) -> None:
    tokens = [token.lstrip("Ġ") for token in processor.tokenizer.tokenize("It shows a triangle, coloured yellow.")]
    assert tokens == ["It", "shows", "a", "triangle", ",", "coloured", "yellow", "."]


def test_the_script_makes_a_folder_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deep" / "tiny"
    tiny_vlm.main([str(folder), "--pictures", "5", "--seed", "1"])
    assert "5 pictures to train on and 240 held back" in capsys.readouterr().out
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]
    assert len(answers(folder, "train")) == 5
    assert len(answers(folder, "val")) == 240


@pytest.mark.parametrize(
    ("wrong", "why"), [(["--pictures", "0"], "1 or more"), (["--seed", "-1"], "0 or more"), ([], "is there already")]
)
def test_what_cannot_be_made_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], why: str
) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(SystemExit, match="2"):
        tiny_vlm.main([str(tmp_path), *wrong])
    assert why in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_shape_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no shape 'star', only circle"):
        tiny_vlm.draw_shape(None, "star", (24, 24), 12, (255, 0, 0))
