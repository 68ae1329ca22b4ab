"""Conversations in files (issue 20, part 2)."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from trainauto.core.errors import InputError
from trainauto.tasks.finetune.captions import PROMPT
from trainauto.tasks.finetune.conversation_files import read_conversations
from trainauto.tasks.finetune.conversation_lines import conversation_of
from trainauto.tasks.finetune.conversations import ImagePart

ANSWER = {"role": "assistant", "content": "red"}


def picture(path: Path, colour: str = "red", mode: str = "RGB") -> Path:
    Image.new(mode, (4, 3), colour).save(path)
    return path


def line_file(folder: Path, *entries: Any) -> Path:
    file = folder / "chats.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return file


def read(path: Path, **options: Any) -> Any:
    return read_conversations(str(path), set_name="train", **options)


def asks(*content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}, ANSWER]}


TEXT = {"type": "text", "text": "Which colour?"}


class TestLines:
    def test_words_and_pictures_keep_their_order(self, tmp_path: Path) -> None:
        picture(tmp_path / "a.png")
        file = line_file(tmp_path, asks(TEXT, {"type": "image", "image": "a.png"}), asks(TEXT))
        first, second = read(file)
        assert first.images == [ImagePart(tmp_path / "a.png")]
        assert [part["type"] for part in first.messages()[0]["content"]] == ["text", "image"]
        assert second.images == []
        assert second.place == f"{file}:2"
        assert list(first.answers()) == [1]

    def test_content_may_be_words_alone(self, tmp_path: Path) -> None:
        (conversation,) = read(line_file(tmp_path, {"messages": [{"role": "user", "content": "Hello"}, ANSWER]}))
        assert conversation.turns[0].text == "Hello"

    def test_pictures_by_bytes_and_by_a_list_beside_the_messages(self, tmp_path: Path) -> None:
        content = picture(tmp_path / "a.png", "blue").read_bytes()
        url = "data:image/png;base64," + base64.b64encode(content).decode()
        entry = asks({"type": "image"}, {"type": "image_url", "image_url": {"url": url}}, TEXT)
        (conversation,) = read(line_file(tmp_path, {**entry, "images": ["a.png"]}))
        colours = [image.open("here").getpixel((0, 0)) for image in conversation.images]
        assert colours == [(0, 0, 255), (0, 0, 255)]

    def test_lines_of_sharegpt_and_llava_are_read(self, tmp_path: Path) -> None:
        picture(tmp_path / "a.png")
        turns = [{"from": "human", "value": "<image>\nWhich colour?"}, {"from": "gpt", "value": "Red."}]
        shown, words = read(
            line_file(
                tmp_path,
                {"id": "1", "image": "a.png", "conversations": turns},
                {"system": "Be short.", "conversations": turns},
            )
        )
        assert [turn.role for turn in words.turns] == ["system", "user", "assistant"]
        assert [turn.text for turn in words.turns] == ["Be short.", "<image>\nWhich colour?", "Red."]
        assert [part["type"] for part in shown.messages()[0]["content"]] == ["image", "text"]
        assert shown.images == [ImagePart(tmp_path / "a.png")]

    @pytest.mark.parametrize(
        ("entry", "says"),
        [
            (["no"], "a list, no object"),
            ({"conversations": [{"from": "human"}]}, "A line of ShareGPT is"),
            ({"conversations": [{"from": "tool", "value": "x"}]}, "message 1 is of 'tool'"),
            ({"message": []}, "Did you mean 'messages'"),
            ({"messages": []}, "no list of messages"),
            ({"messages": [{"role": "human", "content": "x"}, ANSWER]}, "message 1 is of 'human'"),
            ({"messages": [ANSWER]}, "message 1 is of 'assistant' where 'user' is due"),
            ({"messages": [{"role": "user", "content": "x"}]}, "nothing would be learned"),
            (
                {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": " "}]},
                "message 2, an answer of the assistant, is empty",
            ),
            (
                {"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}, ANSWER]},
                "message 2 is of 'user' where 'assistant' is due",
            ),
            (asks({"type": "image", "image": "gone.png"}), "there is no image"),
            (asks({"type": "image"}), "neither its path nor its bytes"),
            (asks({"type": "image", "image": "https://example.com/a.png"}), "Download it"),
            (asks({"type": "video"}), "neither text nor image"),
            ({**asks(TEXT), "images": ["a.png"]}, "1 of its images belong to no message"),
        ],
    )
    def test_what_is_wrong_is_said_with_file_and_line(self, tmp_path: Path, entry: Any, says: str) -> None:
        file = line_file(tmp_path, asks(TEXT), entry)
        with pytest.raises(InputError) as error:
            read(file)
        assert says in str(error.value)
        assert f"{file}:2" in str(error.value)

    def test_the_assistant_shows_no_pictures(self, tmp_path: Path) -> None:
        picture(tmp_path / "a.png")
        turns = [
            {"role": "user", "content": "Draw"},
            {"role": "assistant", "content": [TEXT, {"type": "image", "image": "a.png"}]},
        ]
        with pytest.raises(InputError, match="the assistant shows a picture"):
            read(line_file(tmp_path, {"messages": turns}))

    def test_a_broken_line_shows_the_column(self, tmp_path: Path) -> None:
        file = tmp_path / "chats.jsonl"
        file.write_text('{"messages": [}\n')
        with pytest.raises(InputError, match=r"chats.jsonl:1:15: this line is no JSON"):
            read(file)


class TestPictures:
    def test_sixteen_bits_of_grey_are_not_all_white(self, tmp_path: Path) -> None:
        levels = (np.arange(16, dtype=np.uint16) * 4096).reshape(4, 4)
        Image.fromarray(levels).save(tmp_path / "a.png")
        shown = np.asarray(ImagePart(tmp_path / "a.png").open("here"))
        assert shown[..., 0].tolist() == (levels >> 8).tolist()

    def test_what_is_transparent_is_white(self, tmp_path: Path) -> None:
        Image.new("RGBA", (2, 2), (255, 0, 0, 0)).save(tmp_path / "a.png")
        assert ImagePart(tmp_path / "a.png").open("here").getpixel((0, 0)) == (255, 255, 255)

    def test_an_unreadable_one_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(b"no picture")
        with pytest.raises(InputError, match=r"chats:3: .*a\.png cannot be read"):
            ImagePart(tmp_path / "a.png").open("chats:3")


class TestCaptions:
    def test_a_text_file_beside_each_picture(self, tmp_path: Path) -> None:
        picture(tmp_path / "a.png")
        (tmp_path / "a.txt").write_text("a red picture\n")
        (conversation,) = read(tmp_path)
        assert [turn.text for turn in conversation.turns] == [PROMPT, "a red picture"]
        assert conversation.images == [ImagePart(tmp_path / "a.png")]
        (asked,) = read(tmp_path, prompt="What is it?")
        assert asked.turns[0].text == "What is it?"

    def test_a_table_of_pictures(self, tmp_path: Path) -> None:
        picture(tmp_path / "a.png")
        (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.png", "text": "red"}\n')
        (conversation,) = read(tmp_path)
        assert conversation.turns[1].text == "red"
        assert conversation.place == f"{tmp_path / 'metadata.jsonl'}:1"

    def test_a_picture_without_caption_is_named(self, tmp_path: Path) -> None:
        picture(tmp_path / "a.png")
        with pytest.raises(InputError, match=r"1 pictures have no caption: .*a\.png"):
            read(tmp_path)

    def test_a_table_that_names_what_is_not_there(self, tmp_path: Path) -> None:
        (tmp_path / "metadata.jsonl").write_text('{"file_name": "b.png", "text": "red"}\n')
        with pytest.raises(InputError, match=r"metadata\.jsonl:1:1: there is no picture"):
            read(tmp_path)


class TestRows:
    def test_a_row_of_a_dataset(self, tmp_path: Path) -> None:
        row = {**asks({"type": "image"}, TEXT), "images": [{"bytes": picture(tmp_path / "a.png").read_bytes()}]}
        conversation = conversation_of(row, "set, row 4", tmp_path)
        assert conversation.images[0].open("x").size == (4, 3)

    def test_a_row_that_is_wrong_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="set, row 4: this has 'a', and no messages"):
            conversation_of({"a": 1}, "set, row 4", tmp_path)


def test_a_root_without_any_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no conversations in"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            asks({"type": "image", "image": "a" * 400}),
            "there is no image",
        ),  # bytes in place of a path: no file system takes it
        (asks({"type": "image", "image": "data:image/png;base64,é"}), "is no base64"),
        (asks(TEXT) | {"images": 5}, "'images' is a int, no list"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "half a letter"),
    ],
)
def test_what_is_no_picture_and_no_text_is_named_with_its_line(tmp_path: Path, line: object, said: str) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match=rf"chats\.jsonl:1:1: .*{said}"):
        read_conversations(str(file), set_name="train")


def test_captions_of_pictures_that_are_not_read_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    picture(tmp_path / "a.png")
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text("a red square")
    for name in ("a.json", "b.heic", "c.heic", "d.heic"):  # the first beside a picture, the last without a caption
        (tmp_path / name).write_text("")
    assert len(read(tmp_path)) == 1
    assert "not read, and left out: 2 .heic (b.heic, ...)" in caplog.text


def test_captions_that_are_no_utf8_are_named(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_bytes("ein rötlicher Kreis".encode("latin-1"))
    with pytest.raises(InputError, match=r"a\.txt is no UTF-8 text: byte 5 is 0xf6"):
        read_conversations(str(tmp_path), set_name="train")


def test_a_separator_of_lines_within_a_caption_ends_no_line(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    entry = json.dumps({"file_name": "a.png", "text": "one\u2028two"}, ensure_ascii=False)
    (tmp_path / "metadata.jsonl").write_text(entry + "\n", encoding="utf-8")
    (conversation,) = read_conversations(str(tmp_path), set_name="train")
    assert conversation.turns[1].text == "one\u2028two"
