"""docs/tutorials.md: every tutorial has five steps and names its guide; those in Python run as they stand."""

import re
from pathlib import Path

import pytest

from tests.documents import Block, blocks, read
from tests.integration.commands import command, script
from tests.integration.doc_commands import arguments_of

PAGE = "docs/tutorials.md"
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", read(PAGE), re.MULTILINE))


def blocks_of(heading: str, language: str) -> list[Block]:
    first = read(PAGE).partition(f"## {heading}\n")[0].count("\n") + 1
    last = first + SECTIONS[heading].count("\n")
    return [each for each in blocks(language) if each.page == PAGE and first < each.line <= last]


def test_every_tutorial_has_five_steps_a_guide_and_a_line_in_the_table() -> None:
    assert len(SECTIONS) == 8
    table = read(PAGE).partition("\n## ")[0]
    for heading, text in SECTIONS.items():
        assert re.findall(r"^\*\*(\d)\. ", text, re.MULTILINE) == list("12345"), heading
        assert len(blocks_of(heading, "bash") + blocks_of(heading, "python")) == 5, heading
        assert re.search(r"Guide: \[(\w+\.md)\]\(\1\)\.$", text, re.MULTILINE), heading
        assert "You should see" in text.rpartition("**5. ")[2], heading
        assert f"](#{re.sub(r'[^a-z0-9 -]', '', heading.lower()).replace(' ', '-')})" in table, heading


@pytest.mark.parametrize(
    ("heading", "file", "printed"),
    [
        ("Your own training loop", "loop.py", r"1800 samples, last step: batch_size 64, loss 0\.[0-6]\d"),
        ("The Hugging Face Trainer", "trainer.py", r"800 samples in 14 steps"),
        ("Text inference", "embed.py", r"200 vectors of 32 numbers"),
    ],
)
def test_python_of_a_tutorial_runs_as_it_stands(heading: str, file: str, printed: str, tmp_path: Path) -> None:
    assert f"into one file, `{file}`" in SECTIONS[heading]
    assert f"`python {file}`" in SECTIONS[heading]
    code = "\n\n".join(each.text for each in blocks_of(heading, "python"))
    (tmp_path / file).write_text(code, encoding="utf-8")
    ended = script(file, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(printed, ended.stdout.splitlines()[-1]), ended.stdout
    for shown in (one for each in blocks_of(heading, "bash") for one in each.commands):
        reported = command(*(arguments_of(shown) or ()), cwd=tmp_path)
        assert "limit       " in reported.stdout, (shown, reported.stderr)
