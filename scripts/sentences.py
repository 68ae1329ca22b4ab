"""Sentences that docs/style.md refuses: those of more than 40 words, and those with "nobody" or its like.

python scripts/sentences.py FILE...     pages (.md) and Python files; prints file:line: what, exits with 1 on any

scripts/house_rules.py asks for this of all pages and of the package.

A table cell, a list item, a heading and an item of a docstring's section are texts of their own: no sentence goes
beyond one. Blocks of code and comments are skipped, and code between backticks counts as one word. In Python files,
docstrings and other strings are read.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path

LONGEST_SENTENCE = 40  # words
REFUSED = ("no" + "body", "who" + "ever", "some" + "body")
INSTEAD = "name the subject, such as the software or 'you'"
WATCHED = re.compile(r"(?:README|PACKAGE|CONTRIBUTING|examples/README|docs/.+)\.md|trainauto/.+\.py")

CODE_WORD = "`…`"  # stands for code between backticks and for values of f-strings
CODE = re.compile(r"(?::[\w:]+:)?(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FENCED = re.compile(
    r"^(?P<indent>[ \t]*(?:> ?)*)(?P<fence>`{3,}|~{3,})[^\n]*\n.*?^(?P=indent)(?P=fence)[ \t]*$", re.DOTALL | re.M
)
LINK = re.compile(
    r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\](?:\([^()\s]*(?:\([^()]*\)[^()\s]*)*(?:\s+\"[^\"]*\")?\)|\[[^\[\]]*\])"
)
TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
QUOTE = re.compile(r"^\s*(?:> ?)+")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
RULE = re.compile(r"^\s*(?:[-*_]\s*){3,}$|^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
LINK_TARGET = re.compile(r"^\s*\[[^\]]+\]:\s")
HEADING = re.compile(r"^#{1,6}\s+")
END = re.compile(r"(?P<stop>[.!?…]+)[\"'”’)\]*_]*(?=\s|$)")
INSIDE = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|approx|resp|incl|[Ff]igs?|[Ee]qs?|[Ss]ecs?|Dr|St)\.)$")  # never the end
RARELY = re.compile(r"(?:\b(?:etc|al|[Nn]o)\.|\.\.|…)$")  # the end where a capital follows
REFUSED_WORD = re.compile(rf"\b(?:{'|'.join(REFUSED)})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Text:
    """A paragraph, a table cell, a list item, a heading: what holds whole sentences.

    Attributes:
        line: where it begins, counted from 1.
        text: its words, with line breaks as in the file; code is one word.
    """

    line: int
    text: str

    def sentences(self) -> Iterator["Text"]:
        """Its sentences, each with its line."""
        start = 0
        for end in [*self._ends(), len(self.text)]:
            sentence = self.text[start:end]
            if sentence.strip():
                before = start + len(sentence) - len(sentence.lstrip())
                yield Text(self.line + self.text.count("\n", 0, before), sentence.strip())
            start = end

    def _ends(self) -> Iterator[int]:
        for match in END.finditer(self.text):
            before, after = self.text[: match.end("stop")], self.text[match.end() :].lstrip()
            if not INSIDE.search(before) and not (RARELY.search(before) and not after[:1].isupper()):
                yield match.end()

    @property
    def words(self) -> int:
        """How many words it has: what holds a letter, a digit or code."""
        return sum(any(sign.isalnum() or sign == "`" for sign in word) for word in self.text.split())

    @property
    def is_list(self) -> bool:
        """Whether it lists names and figures, with fewer words of prose than half a sentence has."""
        return sum(word.strip("*_(),:;.").isalpha() for word in self.text.split()) < LONGEST_SENTENCE / 2


def breaches(path: Path) -> Iterator[str]:
    """Sentences of a file that the rule refuses, as ``line: what``."""
    content = path.read_text(encoding="utf-8")
    for text in (texts_of_python if path.suffix == ".py" else texts_of_page)(content):
        for sentence in text.sentences():
            beginning = " ".join(sentence.text.split()[:8])
            if match := REFUSED_WORD.search(sentence.text):
                yield f"{sentence.line}: '{match[0]}': {INSTEAD}: {beginning} ..."
            if sentence.words > LONGEST_SENTENCE and not sentence.is_list:
                yield f"{sentence.line}: {sentence.words} words, more than {LONGEST_SENTENCE}: {beginning} ..."


def texts_of_page(page: str) -> Iterator[Text]:
    """Texts of a page of Markdown."""
    for pattern in (FENCED, COMMENT):
        page = pattern.sub(lambda match: "\n" * match[0].count("\n"), page)
    page = CODE.sub(lambda match: CODE_WORD + "\n" * match[0].count("\n"), page)
    page = LINK.sub(r"\1", LINK.sub(r"\1", page))  # a picture within a link is a link within a link
    for paragraph in paragraphs(TAG.sub(" ", page)):
        yield from _whole(paragraph)


def _whole(text: Text) -> Iterator[Text]:
    if text.text.lstrip().startswith("|"):
        yield from (Text(text.line, cell) for cell in re.split(r"(?<!\\)\|", text.text) if cell.strip())
    else:
        yield Text(text.line, HEADING.sub("", ITEM.sub("", text.text)))


def paragraphs(page: str) -> Iterator[Text]:
    """Runs of lines that belong together; rows of tables, list items and headings are their own."""
    begun: list[str] = []
    first = 1
    for number, full in enumerate([*page.splitlines(), ""], start=1):
        line = QUOTE.sub("", full)
        is_gap = not line.strip() or RULE.match(line) or LINK_TARGET.match(line)
        begins = bool(ITEM.match(line) or HEADING.match(line) or line.lstrip().startswith("|"))
        is_whole = bool(begun) and bool(HEADING.match(begun[0]) or begun[0].lstrip().startswith("|"))
        if begun and (is_gap or begins or is_whole):
            yield Text(first, "\n".join(begun))
            begun = []
        if not is_gap:
            first = first if begun else number
            begun.append(line)


def texts_of_python(source: str) -> Iterator[Text]:
    """Texts of the docstrings and other strings of a Python file."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield from texts_of_string(node.value, node.lineno)
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else CODE_WORD for part in node.values)
            yield from texts_of_string("".join(map(str, parts)), node.lineno)


def texts_of_string(string: str, line: int) -> Iterator[Text]:
    """Paragraphs of a string; in what is indented below a colon or a gap, each line is the beginning of an item."""
    if " " not in string or is_code(string):
        return
    begun: list[str] = []
    first, column, before = line, 0, ""
    indents: list[int] = []  # of the indented parts that a line is in
    text = CODE.sub(lambda match: CODE_WORD + "\n" * match[0].count("\n"), cleandoc(string))
    for number, full in enumerate([*text.splitlines(), ""], start=line):
        indent = len(full) - len(full.lstrip())
        if full.strip():
            while indents and indent < indents[-1]:
                indents.pop()
            if indent > max(column, *indents, 0) and (not before.strip() or before.endswith(":")):
                indents.append(indent)
        begins = bool(ITEM.match(full)) or full.lstrip().startswith("|") or (bool(indents) and indent <= indents[-1])
        if begun and (not full.strip() or begins):
            yield from _whole(Text(first, "\n".join(begun)))
            begun = []
        if full.strip():
            first, column = (first, column) if begun else (number, indent)
            begun.append(full)
        before = full


def is_code(string: str) -> bool:
    """Return whether a string is HTML, a style sheet, a script or a list of words."""
    is_list = len(string.split()) > LONGEST_SENTENCE and not re.search(r"[.,:;]|\b(?:the|an?|of|to|is)\b", string)
    return is_list or bool(re.search(r"</\w+>|[;{]\s*\n|=>|^\s*\{\"", string))


def refused(files: Iterable[Path], root: Path) -> Iterator[str]:
    """Breaches of the pages and of the package as ``file:line: what``."""
    for path in files:
        place = path.relative_to(root).as_posix()
        if WATCHED.fullmatch(place):
            yield from (f"{place}:{breach}" for breach in breaches(path))


def main(arguments: list[str]) -> int:
    """Print the breaches of these files."""
    found = [f"{name}:{breach}" for name in arguments for breach in breaches(Path(name))]
    print("\n".join([*found, f"sentences: {len(found)} refused in {len(arguments)} files"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
