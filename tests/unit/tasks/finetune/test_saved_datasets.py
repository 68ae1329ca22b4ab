"""Conversations in datasets that the package ``datasets`` saved on disk (issue 20, part 2).

It is in no extra: every process that loads a Trainer would load it. The rows are real ones where it is installed.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

from trainauto.core.errors import InputError
from trainauto.tasks.finetune.conversation_files import read_conversations
from trainauto.tasks.finetune.conversations import TextPart

pytestmark = [
    pytest.mark.skipif(find_spec("datasets") is None, reason="datasets is not installed"),
    pytest.mark.filterwarnings("ignore"),  # of its own pickling
]


def asked(*content: dict[str, str]) -> list[dict[str, object]]:
    return [
        {"role": "user", "content": list(content)},
        {"role": "assistant", "content": [{"type": "text", "text": "red"}]},
    ]


def saved(folder: Path, rows: list[dict[str, object]], *, pictures: bool = True) -> Path:
    """A dataset whose pictures are of its own kind of column, on disk."""
    datasets = import_module("datasets")
    made = datasets.Dataset.from_list(rows)
    if pictures:
        made = made.cast_column("images", [datasets.Image()])
    made.save_to_disk(str(folder))
    return folder


def test_rows_are_conversations_and_their_pictures_stay_bytes(tmp_path: Path) -> None:
    Image.new("RGB", (20, 10), "red").save(tmp_path / "a.png")
    picture, words = {"type": "image"}, {"type": "text", "text": "Which colour?"}
    rows: list[dict[str, object]] = [
        {"messages": asked(picture, words), "images": [str(tmp_path / "a.png")]},
        {"messages": asked(words), "images": []},
    ]
    first, second = read_conversations(str(saved(tmp_path / "set", rows)), set_name="train")
    assert first.images[0].open("here").size == (20, 10)
    assert second.images == []
    assert second.turns[0].parts == (TextPart("Which colour?"),)
    assert first.place.endswith("set, row 0")


def test_a_row_that_teaches_nothing_is_named(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"messages": [{"role": "user", "content": "Which colour?"}]}]
    with pytest.raises(InputError, match=r"row 0: no message is of the assistant"):
        read_conversations(str(saved(tmp_path / "set", rows, pictures=False)), set_name="train")
