"""What PyYAML says about broken files, in the words of the person who wrote the file."""

import re
from typing import NamedTuple

from yaml.error import MarkedYAMLError

from trainauto.core.errors import Place, Problem
from trainauto.options.source_locations import Source, printable


class _Saying(NamedTuple):
    """How to retell the errors whose text holds ``sign``.

    ``at_start`` points to where the broken thing began (``{line}`` is its line), not to where PyYAML gave up.
    """

    sign: str
    message: str
    advice: str
    at_start: bool = False


_BRACKET = "a bracket is opened and never closed, or a comma is missing inside it"
_SAYINGS = (
    _Saying("'\\t' that cannot start", "a tab stands where YAML takes only spaces", "Replace the tab with spaces."),
    _Saying("character '@' that cannot", "a text cannot begin with @", "Put it in quotes."),
    _Saying("character '`' that cannot", "a text cannot begin with `", "Put it in quotes."),
    _Saying("character '%' that cannot", "a text cannot begin with %", "Put it in quotes."),
    _Saying("unexpected end of stream", "a quote is opened and never closed", "Add the closing quote.", at_start=True),
    _Saying("document separator", "a quote is opened and never closed", "Add the closing quote.", at_start=True),
    _Saying(
        "unknown escape character",
        "a backslash in double quotes begins an escape, and this is none",
        "Use single quotes, or write \\\\ for a backslash.",
    ),
    _Saying(
        "expected escape sequence",
        "this escape is not complete",
        "Use single quotes, or write \\\\ for a backslash.",
    ),
    _Saying(
        "mapping values are not allowed",
        "a ':' where no value can begin",
        "Check the ':' of the line above and the indentation of this one; put a text that holds ': ' in quotes.",
    ),
    _Saying(
        "mapping keys are not allowed",
        "a '?' where no key can begin",
        "Put a text that begins with '? ' in quotes.",
    ),
    _Saying(
        "sequence entries are not allowed",
        "a list item where no list can begin",
        "Put the '- ' on a line of its own below the key.",
    ),
    _Saying(
        "could not find expected ':'",
        "this line is neither 'key: value' nor a list item",
        "Add the ':' and a space after the key, or indent the line if it continues the one above.",
        at_start=True,
    ),
    _Saying(
        "expected <block end>",
        "this does not belong to the section begun on line {line}",
        "Align it with the other lines of that section, in spaces; check quotes and brackets before it.",
    ),
    _Saying("expected ',' or '}'", _BRACKET, "Close it with }.", at_start=True),
    _Saying("expected ',' or ']'", _BRACKET, "Close it with ].", at_start=True),
    _Saying(
        "expected alphabetic or numeric character",
        "a text cannot begin with * or & (they mark YAML's aliases and anchors)",
        "Put it in quotes.",
        at_start=True,
    ),
    _Saying("undefined alias", "this alias has no anchor above it", "Write &NAME before the value it repeats."),
    _Saying(
        "duplicate anchor",
        "this anchor was already set on line {line}",
        "Give it a name of its own.",
    ),
    _Saying(
        "a single document",
        "a second YAML document begins here",
        "Keep one document in the file: remove the line ---.",
    ),
    _Saying("nested too deeply", "this is nested too deeply", "Option files need less than ten levels."),
)


_AFTER_GLUED = ("mapping values are not allowed", "could not find expected ':'", "expected <block end>")
"""Signs of errors that PyYAML sees a line or more below one such as ``scale:4``."""

_GLUED = re.compile(r"([A-Za-z_][\w.-]*):((?![/\\])[^\s:]\S*)")
_GLUED_LINE = re.compile(rf"[ \t]*(?:- +)*(?P<text>{_GLUED.pattern})[ \t]*(?:#.*)?")
_PASSED_OVER = re.compile(r"[ \t]*(?:#.*)?")


def glued(text: str) -> tuple[str, str] | None:
    """Return the key and the value of a text such as ``scale:4``, which lacks a space; ``None`` of any other text."""
    found = _GLUED.fullmatch(text)
    return (found[1], found[2]) if found else None


def glued_problem(key: str, value: str, place: Place) -> Problem:
    """Return what to say of :func:`glued` text."""
    key, value = printable(key), printable(value)
    return Problem(f"no space follows the ':' of '{key}'", place, f"Write `{key}: {value}`.")


def _glued_line(source: Source, index: int) -> Problem | None:
    """Return the problem of a line such as ``scale:4`` where the error at ``index`` comes of it.

    It is the line above the error, or that of the error itself.
    """
    lines = re.finditer(r"[^\r\n]+", source.text[: index + 1])
    told = [line for line in lines if not _PASSED_OVER.fullmatch(line[0])][-2:]
    for line in reversed(told):
        whole = source.place(line.start()).text
        if found := _GLUED_LINE.fullmatch(whole):
            return glued_problem(found[2], found[3], source.place(line.start() + found.start("text")))
    return None


def syntax_problem(error: MarkedYAMLError, source: Source) -> Problem:
    """Retell a syntax error found in ``source``."""
    problem = str(error.problem or error.context or "this is not YAML")
    saying = next((saying for saying in _SAYINGS if saying.sign in f"{error.context} {problem}"), None)
    here = error.problem_mark or error.context_mark
    start = error.context_mark or here
    if here and saying and saying.sign in _AFTER_GLUED and (problem_of_line := _glued_line(source, here.index)):
        return problem_of_line
    # Only errors of the reader come without a mark, and those are caught before PyYAML reads.
    place = source.place(start.index if saying and saying.at_start and start else here.index if here else 0)
    if saying is None:
        return Problem(f"this is not YAML: {problem}", place, "Check indentation, quotes and brackets here and above.")
    line = source.place(start.index).line if start else place.line
    return Problem(saying.message.format(line=line), place, saying.advice)
