from pathlib import Path

import pytest
import sentences

SEVEN = "the plan follows the memory there is "
LONG = SEVEN * 6  # 42 words


def found(path: Path, text: str) -> list[str]:
    """Return the breaches of a file that holds this text."""
    path.write_text(text, encoding="utf-8")
    return list(sentences.breaches(path))


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        (LONG, True),
        (SEVEN * 5 + "and five words more here", False),  # 40
        (f"{SEVEN * 3}. {SEVEN * 3}", False),
        (f"{SEVEN * 3}, e.g. {SEVEN * 3}", True),
        (f"{SEVEN * 3} by .5 % and 2.5 GiB {SEVEN * 3}", True),
        (f"{SEVEN * 3} crops, batches etc. and {SEVEN * 3}", True),
        (f"{SEVEN * 3} crops, batches etc. Then {SEVEN * 3}", False),
        (f"**{SEVEN * 3}.** {SEVEN * 3}", False),
        (f"{SEVEN * 5} `python -m trainauto train -opt\nmine.yml --auto_resume`", False),
        (f"{SEVEN * 5} [pages](https://a.b/c/d.md) and [others](x.md) with `code` and more", True),
        (f"{SEVEN * 3}\n\n{SEVEN * 3}", False),
        (f"{SEVEN * 3}\n{SEVEN * 3}", True),
        (f"# {SEVEN * 3}\n{SEVEN * 3}", False),
        (f"- {SEVEN * 3}\n- {SEVEN * 3}", False),
        (f"- {SEVEN * 3}\n  {SEVEN * 3}", True),
        (f"| {SEVEN * 3} | {SEVEN * 3} |\n|---|---|\n| {SEVEN * 3} | {SEVEN * 3} |", False),
        (f"| {LONG} | b |", True),
        (f"```text\n{LONG}\n```", False),
        (f"- an item\n\n  ```text\n  {LONG}\n  ```", False),
        (f"<!-- {LONG} -->", False),
        ("This takes " + ", ".join(f"`option_{number}` {number}" for number in range(30)) + ".", False),
    ],
)
def test_long_sentences_of_pages(tmp_path: Path, text: str, is_refused: bool):
    assert len(found(tmp_path / "page.md", text)) == is_refused


def test_refused_words_have_their_line(tmp_path: Path):
    word = sentences.REFUSED[0]
    lines = found(tmp_path / "page.md", f"# A page\n\nOne is\nfine. {word.title()} is.\n\n`{word}` is code.\n")
    assert [line.partition(":")[0] for line in lines] == ["4"]
    assert word.title() in lines[0]


@pytest.mark.parametrize(
    ("source", "is_refused"),
    [
        (f'"""{LONG}."""', True),
        (f"# {LONG}", False),
        (f'raise ValueError(f"{SEVEN * 3} {{a}} " "{SEVEN * 3}")', True),
        (f'def f():\n    """F.\n\n    Args:\n        a: {SEVEN * 3}\n        b: {SEVEN * 3}\n    """', False),
        (f'def f():\n    """F.\n\n    Args:\n        a: {SEVEN * 3}\n            {SEVEN * 3}\n    """', True),
        (f'USAGE = """\nwhat is printed:\n  {SEVEN * 3}\n  {SEVEN * 3}\n"""', False),
        (f'NAMES = "{"acos asin cosh " * 14}".split()', False),
        (f'PAGE = "<p>{LONG}.</p>"', False),
    ],
)
def test_long_sentences_of_strings(tmp_path: Path, source: str, is_refused: bool):
    assert len(found(tmp_path / "module.py", source)) == is_refused


def test_files_of_the_repository_that_are_watched(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    pages = [tmp_path / name for name in ("README.md", "docs/page.md", "notes.md")]
    for page in pages:
        page.write_text(LONG)
    assert [line.partition(":")[0] for line in sentences.refused(pages, tmp_path)] == ["README.md", "docs/page.md"]


def test_the_command_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """docs/style.md."""
    pages = [str(Path(__file__).parents[3] / name) for name in ("README.md", "docs/style.md")]
    assert sentences.main(pages) == 0
    (tmp_path / "page.md").write_text(LONG)
    assert sentences.main([*pages, str(tmp_path / "page.md")]) == 1
    assert capsys.readouterr().out.splitlines()[-2].startswith(f"{tmp_path / 'page.md'}:1: 42 words")
