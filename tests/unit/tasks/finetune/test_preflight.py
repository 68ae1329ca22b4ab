"""Conversations looked through before a run: what cannot be learned is named, what is too long is left out or cut."""

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.vision_models import FAMILIES, processor_of
from trainauto.core.errors import InputError
from trainauto.tasks.finetune.conversation_files import read_conversations
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.encoding import ConversationEncoder, TooLongError
from trainauto.tasks.finetune.preflight import MOST_PROBLEMS, LookedThrough, look_through

ORIENTATION = 0x0112


@cache
def encoder(family: str = "qwen3_vl") -> ConversationEncoder:
    return ConversationEncoder(processor_of(family))


def picture(file: Path, size_px: tuple[int, int] = (40, 24), turned: int = 0) -> Path:
    """Write noise, which no format makes small; ``turned`` is the value of its EXIF tag."""
    pixels = np.random.default_rng(size_px[0]).integers(0, 255, (size_px[1], size_px[0], 3), np.uint8)
    exif = Image.Exif()
    if turned:
        exif[ORIENTATION] = turned
    Image.fromarray(pixels).save(file, exif=exif)
    return file


def chat(pictures: Sequence[Path] = (), *, answers: int = 1, words: str = "Which colour is it?") -> dict[str, Any]:
    asked = [{"type": "image", "image": file.name} for file in pictures]
    messages = []
    for number in range(answers):
        content = [*(asked if not number else []), {"type": "text", "text": words}]
        messages += [{"role": "user", "content": content}, {"role": "assistant", "content": "a red square"}]
    return {"messages": messages}


def read(folder: Path, *entries: dict[str, Any]) -> list[Conversation]:
    file = folder / "chats.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return read_conversations(str(file), set_name="train")


def looked(conversations: Sequence[Conversation], most: int | None = None, how: Any = "drop") -> LookedThrough:
    return look_through(conversations, encoder(), most, how)


@pytest.mark.parametrize("family", FAMILIES)
def test_counted_lengths_are_those_of_encoding(tmp_path: Path, family: str) -> None:
    """Whatever a picture's size, and however it lies in its file: nothing is encoded to know it."""
    pictures = [
        picture(tmp_path / f"{w}x{h}.png", (w, h)) for w, h in ((16, 16), (40, 24), (24, 40), (17, 90), (90, 33))
    ]
    turned = [picture(tmp_path / f"turned_{value}.jpg", (64, 17), value) for value in (1, 3, 6, 8)]
    conversations = read(
        tmp_path, chat(), *(chat([file]) for file in (*pictures, *turned)), chat(pictures[:2], answers=2), chat(turned)
    )
    lengths = look_through(conversations, encoder(family), None, "drop").lengths.tolist()
    encoded = [encoder(family).encode(conversation) for conversation in conversations]
    assert lengths == [len(each.ids) for each in encoded]
    assert [each.images for each in encoded] == [0, *[1] * 9, 2, 4]


def test_the_longest_has_most_tokens(tmp_path: Path) -> None:
    found = looked(read(tmp_path, chat(), chat([picture(tmp_path / "a.png", (90, 90))] * 3), chat()))
    assert found.lengths.tolist() == [24, 42, 24]
    assert int(found.lengths.argmax()) == 1


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_a_picture_that_lacks_its_end_is_named_with_its_line(tmp_path: Path, suffix: str) -> None:
    whole = picture(tmp_path / f"whole{suffix}", (64, 64))
    cut = tmp_path / f"cut{suffix}"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    with pytest.raises(InputError) as caught:
        looked(read(tmp_path, chat([whole]), chat([whole, cut]), chat()))
    (problem,) = caught.value.problems
    assert f"{tmp_path / 'chats.jsonl'}:2: {cut} cannot be read as a picture" in problem.message


def test_what_is_no_picture_is_named(tmp_path: Path) -> None:
    words = tmp_path / "words.png"
    words.write_text("no picture")
    conversations = read(tmp_path, chat([words]))
    with pytest.raises(InputError, match=r"chats\.jsonl:1: .*words\.png cannot be read as a picture"):
        looked(conversations)
    words.unlink()
    os.mkfifo(words)
    with pytest.raises(InputError, match=r"words\.png cannot be read as a picture: it is a FIFO"):  # and is not opened
        looked(conversations)


def test_all_that_cannot_be_used_comes_at_once(tmp_path: Path) -> None:
    """Up to twenty; how many more there are is said."""
    words = tmp_path / "words.png"
    words.write_text("no picture")
    bad = MOST_PROBLEMS + 3
    with pytest.raises(InputError) as caught:
        looked(read(tmp_path, chat(), *([chat([words])] * bad)))
    messages = [problem.message for problem in caught.value.problems]
    assert len(messages) == MOST_PROBLEMS + 1
    assert all(f"chats.jsonl:{line}: " in message for line, message in enumerate(messages[:-1], start=2))
    assert messages[-1] == "3 more conversations cannot be used"


def test_what_is_too_long_is_left_out(tmp_path: Path) -> None:
    conversations = read(tmp_path, chat(), chat(words="the other one " * 20), chat())
    lengths = looked(conversations).lengths
    found = looked(conversations, int(lengths[0]))
    assert [one.place[-2:] for one in found.conversations] == [":1", ":3"]
    assert [place[-2:] for place in found.dropped] == [":2"]
    assert found.cut == ()
    assert found.lengths.tolist() == [lengths[0], lengths[2]]


def test_what_is_too_long_is_cut_to_the_answers_that_fit(tmp_path: Path) -> None:
    """Where not even the first does, it is left out."""
    conversations = read(tmp_path, chat(answers=3), chat(answers=2), chat(words="the other one " * 20))
    two = int(looked(conversations).lengths[1])
    found = looked(conversations, two, "cut")
    assert found.lengths.tolist() == [two, two]
    assert [len(one.turns) for one in found.conversations] == [4, 4]
    assert [place[-2:] for place in found.cut] == [":1"]
    assert [place[-2:] for place in found.dropped] == [":3"]
    assert all(len(encoder().encode(one).ids) == two for one in found.conversations)


def test_what_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TooLongError, match=r"chats\.jsonl:2: \d+ tokens, where 40 are allowed"):
        looked(read(tmp_path, chat(), chat(words="the other one " * 20)), 40, "refuse")


@pytest.mark.parametrize("how", ["drop", "cut"])
def test_nothing_is_left(tmp_path: Path, how: str) -> None:
    with pytest.raises(InputError, match="all 2 conversations have more than 5 tokens") as caught:
        looked(read(tmp_path, chat(), chat()), 5, how)
    assert "max_length" in caught.value.problems[0].advice
