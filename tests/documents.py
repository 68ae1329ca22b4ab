"""The pages of the documentation as tests read them: blocks of code, and commands in and outside of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(?:^<!-- setup\n(?P<setup>.*?)^-->\n)?^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
REMARK = re.compile(r"(?:^|\s+)#\s.*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Attributes:
        page: its page, as seen from the repository.
        number: how many blocks of its language stand before it on the page.
        line: of the page, where it begins; counted from 1.
        language: what stands behind the fence.
        text: what it holds.
        setup: what a comment in front of it, which readers do not see, has a test run before it.
    """

    page: str
    number: int
    line: int
    language: str
    text: str
    setup: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.language}:{self.number}"

    @property
    def commands(self) -> list[str]:
        """Commands of a block of bash, continued lines as one, without remarks."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [command for line in lines if (command := " ".join(REMARK.sub("", line).split()))]


@cache
def pages() -> list[str]:
    """Return all pages that people read, as seen from the repository."""
    documents = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return ["README.md", "PACKAGE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", *documents]


@cache
def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def blocks(language: str | None = None) -> list[Block]:
    """Return the blocks of all pages, or those of a language, in order."""
    found = [block for page in pages() for block in _blocks_of(page)]
    return [block for block in found if language in (None, block.language)]


def block(page: str, language: str, number: int = 0) -> Block:
    """Return one block of a page."""
    return next(one for one in blocks(language) if (one.page, one.number) == (page, number))


def _blocks_of(page: str) -> Iterator[Block]:
    seen: dict[str, int] = {}
    for match in BLOCK.finditer(read(page)):
        language = match["language"]
        number = seen[language] = seen.get(language, -1) + 1
        line = read(page)[: match.start("indent")].count("\n") + 1
        text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        yield Block(page, number, line, language, text, match["setup"] or "")


def prose(page: str) -> str:
    """Return a page without its blocks of code."""
    return BLOCK.sub("", read(page))


def inline_code(page: str) -> list[str]:
    """Return what stands between backticks on a page, in one line where it is wrapped."""
    return [" ".join(code.split()) for code in INLINE.findall(prose(page))]
