"""Numbers with their nouns, and paths with what they are, for what people read."""

import unicodedata
from pathlib import Path

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters (escape sequences, marks that turn the direction of text), lone surrogates, separators
of lines: what changes how the text around it is shown."""

_JOINER = "\u200d"
"""Holds the parts of one emoji together; alone it shows nothing and moves nothing."""


def visible(text: str, longest: int | None = None) -> str:
    r"""Return text that harms neither a terminal nor a page: what would be acted on instead of shown is written out.

    ``\x1b[31m`` stays readable as those characters; newlines and tabs are written out, too.

    Args:
        text: whatever a person, a file or an error said.
        longest: characters of the result; what is longer loses its end to an ellipsis. ``None`` cuts nothing.
    """
    if longest is not None:
        text = text[: longest + 1]
    if not text.isascii() or not text.isprintable():
        text = "".join(map(_shown, text))
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def visible_lines(text: str) -> str:
    """Return text whose line breaks are its writer's own: each line made harmless by :func:`visible`."""
    return "\n".join(map(visible, text.split("\n")))


def _shown(character: str) -> str:
    if character == _JOINER or unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    return character.encode("unicode_escape").decode("ascii")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural: ``1 batch``, ``8 batches``."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def path_words(path: str) -> str:
    """Return a path that is not there, with what its name says it would be: ``folder 'chats'``, ``file 'a.jsonl'``."""
    return f"{'file' if Path(path).suffix else 'folder'} '{path}'"
