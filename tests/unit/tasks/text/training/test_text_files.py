"""Texts in files: what is a sample, where it stands, and what is refused with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainauto.core.errors import InputError
from trainauto.tasks.text.training.text_files import read_texts
from trainauto.tasks.text.training.text_samples import Chat, Completion, PlainText, TextPair, TextSample, set_aside

TWO_PARAGRAPHS = "\ufefffirst line\r\nsecond line\r\n\r\n  \r\nanother\r\n"


def read(path: Path | str, **settings: Any) -> list[TextSample]:
    return read_texts(str(path), set_name="novels", **settings)


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("paragraphs", [(1, "first line\nsecond line"), (5, "another")]),
        ("lines", [(1, "first line"), (2, "second line"), (5, "another")]),
        ("files", [(1, "first line\nsecond line\n\n  \nanother")]),
    ],
)
def test_plain_texts_are_split_and_know_their_lines(tmp_path: Path, split: Any, expected: list[Any]) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(TWO_PARAGRAPHS.encode())
    assert read(file, split=split) == [TextSample(f"{file}:{line}", PlainText(text)) for line, text in expected]


def test_json_lines_hold_every_kind_of_sample(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    lines = [
        {"text": "a"},
        {"prompt": "b", "completion": "c", "id": 7},
        {"source": "d", "target": "e"},
        {"messages": chat},
    ]
    file = tmp_path / "a.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    samples = read(file)
    assert [sample.content for sample in samples] == [
        PlainText("a"),
        Completion("b", "c"),
        TextPair("d", "e"),
        Chat((("user", "hi"), ("assistant", "hello"))),
    ]
    assert [sample.place for sample in samples] == [f"{file}:{line}" for line in (1, 3, 5, 7)]
    assert [text for sample in samples for text in sample.texts] == ["a", "b", "c", "d", "e", "hi", "hello"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "this line is a list, no JSON object"),
        ("{}", "this line is an empty object"),
        ('{"txt": "a"}', "has the keys 'txt'\n.*\n.*\n.*Did you mean 'text'"),
        ('{"text": 4}', "'text' is no text but 4"),
        ('{"prompt": "a", "completion": null}', "'completion' is no text but None"),
        ('{"messages": []}', "'messages' is no list of messages"),
        ('{"messages": [{"role": "user"}]}', "is no message"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "no message has the role 'assistant'"),
    ],
)
def test_lines_that_are_no_samples_are_refused_with_their_place(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "good"}\n' + line, encoding="utf-8")
    with pytest.raises(InputError, match=f"(?s)a.jsonl:2:1: .*{message}"):
        read(file)


def test_a_broken_line_is_named_once_with_its_column(tmp_path: Path) -> None:
    """B34: and not as line 1 of itself."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "good"}\n{"text": ill}', encoding="utf-8")
    with pytest.raises(
        InputError, match=r"(?s)a.jsonl:2:10: this line is no JSON: Expecting value\n.*one object"
    ) as caught:
        read(file)
    assert "line 1" not in str(caught.value)


def test_the_text_in_python_files_is_their_long_strings(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    text = "A module with a docstring of some length, which says what it does and why anybody wants it."
    file.write_text(f'"""{text}\n\nMore of it."""\nNAME = "short"\nassert "\\d"\n', encoding="utf-8")
    assert [sample.content for sample in read(file, file_format="strings")] == [
        PlainText(text),
        PlainText("More of it."),
    ]
    assert [sample.place.rpartition(":")[2] for sample in read(tmp_path, file_format="strings")] == ["1", "3"]
    file.write_text("def", encoding="utf-8")
    with pytest.raises(InputError, match=r"module.py:1:4: this is no Python file: invalid syntax"):
        read(file, file_format="strings")


def test_real_text_comes_with_python() -> None:
    samples = read("package:pydoc_data/topics.py", file_format="strings")
    assert len(samples) > 1000
    assert any("Assignment statements are used to" in text for sample in samples for text in sample.texts)


def test_folders_are_searched_without_what_is_hidden(tmp_path: Path) -> None:
    for name in ("b.txt", "a/c.md", "picture.png", ".git/d.txt", "e.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "x"}' if name == "e.jsonl" else name, encoding="utf-8")
    assert [sample.texts for sample in read(tmp_path)] == [("a/c.md",), ("b.txt",), ("x",)]
    both = read_texts([str(tmp_path / "b.txt"), str(tmp_path / "a")], set_name="novels")
    assert [sample.texts for sample in both] == [("b.txt",), ("a/c.md",)]


def test_roots_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "novels.txt").write_bytes(b"good\nb\xe4d")
    with pytest.raises(InputError, match="is no UTF-8 text: see line 2"):
        read(tmp_path)
    with pytest.raises(InputError, match=r"there is no .*novel.txt\n.*Did you mean 'novels.txt'"):
        read(tmp_path / "novel.txt")
    with pytest.raises(InputError, match="the Python package 'no_such_package' is not installed"):
        read("package:no_such_package/a.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="dataset 'novels': no texts in"):
        read(tmp_path / "empty")
    with pytest.raises(InputError, match="the list of roots is empty"):
        read_texts([], set_name="novels")


def test_a_share_is_set_aside() -> None:
    samples = [TextSample(f"a:{number}", PlainText(str(number))) for number in range(50)]
    kept, aside = set_aside(samples, 0.1, seed=3)
    assert len(aside) == 5
    assert sorted(kept + aside, key=samples.index) == samples
    assert set_aside(samples, 0.1, seed=3) == (kept, aside)
    assert set_aside(samples, 0.1, seed=4)[1] != aside
    with pytest.raises(InputError, match=r"a share of 0\.001 of 50 samples leaves nothing to validate on\n.*from 0.02"):
        set_aside(samples, 0.001, seed=3)
    with pytest.raises(InputError, match="leaves nothing to train on"):
        set_aside(samples[:1], 0.9, seed=3)
