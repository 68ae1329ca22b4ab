"""What the site is built of: the pages of the repository, laid out as one folder of Markdown.

Pages link to each other and to files of the repository as a code host follows links. A site knows its own pages alone:
links that leave docs/ are led to pages that this module adds, the files they name shown whole. Lines stay where they
are, so that a place in a laid-out page is a place in its source.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

PAGES_ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
}
"""Pages that lie outside docs/, and what they are called within the site."""

FILES = "files"
"""Folder of the pages that show a file of the repository."""

LINK_OR_CODE = re.compile(
    r"^[ \t]*(?P<fence>`{3,})[^`\n]*\n.*?^[ \t]*(?P=fence)`*[ \t]*$"
    r"|\[(?P<words>[^\[\]]*)\]\((?P<address>[^)\s#]+)(?P<anchor>(?:#[^)\s]*)?)\)",
    re.DOTALL | re.MULTILINE,
)
FILE_NAME = re.compile(r"[\w./-]+\.md")
TITLE = re.compile(r"^# ([^:\n]+)", re.MULTILINE)
LANGUAGES = {".py": "python", ".yml": "yaml", ".toml": "toml", ".json": "json", ".sh": "bash"}

Pages = Mapping[str, str | Path]
"""By path within the site: the text of a page, or the file that is copied as it is."""


@dataclass
class Site:
    """The pages of a repository as they are gathered: each source, and its path within the site."""

    root: Path
    inside: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Links to files that are not there: ``file:line:column: what``."""

    def gather(self) -> Pages:
        """Return the pages, those of files that other pages link to included."""
        self.inside = {name: page for name, page in PAGES_ELSEWHERE.items() if (self.root / name).is_file()}
        for path in sorted((self.root / "docs").rglob("*")):
            if path.is_file():
                name = path.relative_to(self.root).as_posix()
                self.inside[name] = name.removeprefix("docs/")
        pages: dict[str, str | Path] = {}
        while waiting := [name for name, page in self.inside.items() if page not in pages]:
            for name in waiting:
                pages[self.inside[name]] = self.content(name)
        return pages

    def content(self, name: str) -> str | Path:
        """Return what the site has of a source: its text with links led, or itself where it is no page."""
        if name.endswith(".md"):
            return LINK_OR_CODE.sub(partial(self.led, name), (self.root / name).read_text("utf-8"))
        if self.inside[name].endswith(".md"):
            return LINK_OR_CODE.sub(partial(self.led, name), shown(self.root / name, name))
        return self.root / name

    def led(self, source: str, link: re.Match[str]) -> str:
        """Return a link of ``source`` as it is within the site; what it names joins the pages.

        A link that is called as its file is gets the title of the page, which is what readers of a site know it by.
        """
        _, words, address, anchor = link.groups()
        if not address or ":" in address:
            return link[0]  # code, or an address of another host
        name = os.path.normpath(PurePosixPath(source).parent / address).replace(os.sep, "/")
        if (self.root / name / "README.md").is_file():
            name += "/README.md"
        if name not in self.inside and (name.startswith("..") or not (self.root / name).exists()):
            self.broken.append(f"{source}:{place(link)}: there is no {address}")
            return words
        page = self.inside.setdefault(name, f"{FILES}/{name if name.endswith('.md') else name + '.md'}")
        if FILE_NAME.fullmatch(words) and (title := TITLE.search((self.root / name).read_text("utf-8"))):
            words = title[1]
        from_here = os.path.relpath(page, PurePosixPath(self.inside[source]).parent).replace(os.sep, "/")
        return f"[{words}]({from_here}{anchor})"


def place(match: re.Match[str]) -> str:
    """Return where a match begins, ``line:column``, both counted from 1."""
    before = match.string[: match.start()]
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def shown(path: Path, name: str) -> str:
    """Return a page that shows a file of the repository, or links to what is in a folder."""
    if path.is_dir():
        inside = sorted(entry.name for entry in path.iterdir() if entry.suffix in LANGUAGES)
        return f"# {name}\n\n" + "".join(f"- [{entry}]({path.name}/{entry})\n" for entry in inside)
    text = path.read_text("utf-8")
    longest = max(map(len, re.findall(r"^\s*(`{3,})", text, re.MULTILINE)), default=2)
    fence = "`" * (longest + 1)
    return f"# {name}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def lay_out(pages: Pages, folder: Path) -> None:
    """Make ``folder`` hold these pages and nothing else; what is the same already is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in pages:
            path.unlink()
    for name, content in pages.items():
        data = content.encode() if isinstance(content, str) else content.read_bytes()
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def source_of(page: str) -> str:
    """Return the file of the repository that a page of the site is made of."""
    elsewhere = {inside: name for name, inside in PAGES_ELSEWHERE.items()}
    if page in elsewhere:
        return elsewhere[page]
    return page.removeprefix(f"{FILES}/").removesuffix(".md") if page.startswith(f"{FILES}/") else f"docs/{page}"
