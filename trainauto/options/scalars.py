"""Scalars by the YAML 1.2 core schema (https://yaml.org/spec/1.2.2/#103-core-schema).

PyYAML follows YAML 1.1, where ``lr: 1e-4`` is text, ``on:`` is true and ``12:30:45`` is 45045.
"""

import re
from collections.abc import Callable
from typing import Any

PREFIX = "tag:yaml.org,2002:"

_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"[-+]?(?:\.inf|\.Inf|\.INF)\Z")
_FLOAT = re.compile(f"(?:{_NUMBER.pattern}|{_INF.pattern}|(?:\\.nan|\\.NaN|\\.NAN)\\Z)")

LARGEST_INTEGER = 2**63 - 1
"""No option needs more, and nothing that reads options (tensors, JSON readers, generators) takes more."""

LARGEST_FLOAT = 3.4028236e38
"""Of the numbers that networks compute with, which have 32 bits."""

RESOLVERS: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {
    None: [
        (PREFIX + "null", _NULL),
        (PREFIX + "bool", _BOOL),
        (PREFIX + "int", _INT),
        (PREFIX + "float", _FLOAT),
        (PREFIX + "merge", re.compile(r"<<\Z")),
    ]
}
"""Tag of an unquoted scalar by its text, tried in order; ``None`` means "whatever its first character is"."""


class ScalarError(ValueError):
    """A scalar does not say what its tag promises; the message completes "'abc' ...".

    Args:
        message: what is wrong.
        advice: what to do about it.
    """

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


def scalar(tag: str, text: str) -> Any:
    """Return the value of a scalar.

    Args:
        tag: its full tag, resolved or written.
        text: its text.

    Raises:
        ScalarError: the text does not fit the tag, or the tag is not one of an option file.
    """
    read = _READERS.get(tag)
    if read is None:
        shown = tag.replace(PREFIX, "!!")
        raise ScalarError(f"has the tag {shown}, which option files do not know", "Remove the tag.")
    return read(text)


def _text(text: str) -> str:
    # Escapes such as "\ud800" can spell half a character, which no file or terminal could take.
    if "\0" in text:
        raise ScalarError("holds a zero character, which no text of an option has", "Remove the escape.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ScalarError("holds an escape that is half a character", "Write the character itself.")
    return text


def _null(text: str) -> None:
    if not _NULL.match(text):
        raise ScalarError("is not null", "Write null, or remove the tag !!null.")


def _bool(text: str) -> bool:
    if not _BOOL.match(text):
        raise ScalarError("is neither true nor false", "Write true or false.")
    return text.lower() == "true"


def _int(text: str) -> int:
    if not _INT.match(text):
        raise ScalarError("is not a whole number", "Write digits only, or remove the tag !!int.")
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # Python refuses to convert very long numbers, so length is judged first; the value decides otherwise.
    value = int(text, base) if len(text) <= 100 else LARGEST_INTEGER + 1
    if abs(value) > LARGEST_INTEGER:
        raise ScalarError("is a whole number of more than 64 bits", "Put it in quotes if it is text.")
    return value


def _float(text: str) -> float:
    if not _FLOAT.match(text):
        raise ScalarError("is not a number", "Write a number such as 1e-4, or remove the tag !!float.")
    if not _NUMBER.match(text):
        return float(text.replace(".", "", 1))
    if abs(value := float(text)) > LARGEST_FLOAT:
        raise ScalarError("is a number of more than 32 bits", f"Write one of at most {LARGEST_FLOAT:.2g}.")
    return value


_READERS: dict[str, Callable[[str], Any]] = {
    PREFIX + "null": _null,
    PREFIX + "bool": _bool,
    PREFIX + "int": _int,
    PREFIX + "float": _float,
    PREFIX + "str": _text,
    PREFIX + "merge": _text,
}
