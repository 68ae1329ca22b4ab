"""What is wrong with the values of an option file, in words; shared by typed options and components' arguments."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from trainauto.core.errors import Problem, nearest
from trainauto.options.lookup import field_at, fields_of, section_at
from trainauto.options.source_locations import KeyPath, Places, dotted, printable
from trainauto.options.yaml_errors import glued


class Finding(NamedTuple):
    """A problem before its place is looked up: where, what, what to do; ``at_key`` points to the key."""

    path: KeyPath
    message: str
    advice: str
    at_key: bool = False

    def problem(self, places: Places) -> Problem:
        """Return the finding with its place."""
        place = places.of_key(self.path) if self.at_key else places.of_value(self.path)
        return Problem(self.message, place, self.advice)


KeyFinding = Callable[[KeyPath], Finding]
"""Words a key that is unknown, or one that is missing."""

_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "text of at least {min_length} character(s)",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "path_type": "text",
    "too_short": "at least {min_length} item(s)",
    "too_long": "at most {max_length} item(s)",
    "unexpected_positional_argument": "fewer items",
    "dict_type": "a section of keys",
    "mapping_type": "a section of keys",
    "model_type": "a section of keys",
    "dataclass_type": "a {class_name}, which no option file can hold",
    "dataclass_exact_type": "a {class_name}, which no option file can hold",
    "literal_error": "one of {expected}",
    "enum": "one of {expected}",
    "none_required": "null",
    "string_pattern_mismatch": "text that matches {pattern}",
    "greater_than_equal": "a number of at least {ge}",
    "greater_than": "a number above {gt}",
    "less_than_equal": "a number of at most {le}",
    "less_than": "a number below {lt}",
    "is_instance_of": "a {class}, which no option file can hold",
    "is_subclass_of": "a subclass of {class}, which no option file can hold",
    "callable_type": "a function, which no option file can hold",
}
"""What a value should have been, by pydantic's name of the error."""

_NUMERIC = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\Z")
_TRUE, _FALSE = ("yes", "on", "y", "true", "1"), ("no", "off", "n", "false", "0")

_SYNONYMS = {"gpu": "cuda", "nvidia": "cuda"}


class _Error(NamedTuple):
    """An error of pydantic whose path holds keys and positions of the file only."""

    path: KeyPath
    owner: KeyPath
    kind: str
    expected: str
    value: Any


def findings_of(
    error: ValidationError,
    model: type[BaseModel],
    tree: Any,
    *,
    unknown: KeyFinding,
    missing: KeyFinding,
    base: KeyPath = (),
) -> list[Finding]:
    """Word the errors that ``model`` found in ``tree``, one for each value.

    Args:
        error: what validation raised.
        model: what was validated against.
        tree: what was validated.
        unknown: words an unknown key, by its path in ``tree``.
        missing: words a missing key, by its path in ``tree``.
        base: where ``tree`` stands in the file; it is put before the paths of the findings.
    """
    groups: dict[KeyPath, list[_Error]] = {}
    for raw in error.errors(include_url=False):
        reading = _read(raw, tree)
        groups.setdefault(reading.owner, []).append(reading)
    findings: list[Finding] = []
    for group in groups.values():
        # A union reports each of its members; the one that got furthest is what the person meant.
        depth = max(len(reading.path) for reading in group)
        furthest = [reading for reading in group if len(reading.path) == depth]
        first = furthest[0]
        if first.kind == "extra_forbidden":
            findings.append(unknown(first.path))
        elif first.kind == "missing" and isinstance(first.path[-1], int):
            whole = first.path[:-1]
            message = f"{dotted((*base, *whole))} has too few items"
            findings.append(Finding(whole, message, described(model, whole) or "Add the items that lack."))
        elif first.kind == "missing":
            findings.append(missing(first.path))
        elif first.kind == "value_error":
            # Raised by a class that checks its own values.
            message = f"{dotted((*base, *first.path))}: {first.expected}"
            findings.append(Finding(first.path, message, described(model, first.path) or "Correct the value."))
        else:
            first = first._replace(expected=_joined(reading.expected for reading in furthest))
            message = f"{dotted((*base, *first.path))} takes {first.expected}, but {_given(first)}"
            at_key = isinstance(first.value, dict | list | None)
            findings.append(Finding(first.path, message, _advice(first, model), at_key))
    return [finding._replace(path=(*base, *finding.path)) for finding in findings]


def _read(raw: Mapping[str, Any], tree: Any) -> _Error:
    path: KeyPath = ()
    owner: KeyPath | None = None
    value = tree
    location = raw["loc"]
    for position, step in enumerate(location):
        last = position == len(location) - 1
        if _holds(value, step):
            value = value[step]
        elif not (last and raw["type"] == "missing"):
            # The name of a member of a union, which stands in no file.
            owner = path if owner is None else owner
            continue
        path = (*path, step)
    template = _EXPECTED.get(raw["type"])
    message = str(raw["ctx"]["error"] if raw["type"] == "value_error" else raw["msg"])
    expected = template.format(**raw.get("ctx", {})) if template else f"{message[:1].lower()}{message[1:]}"
    return _Error(path, path if owner is None else owner, raw["type"], expected, value)


def _joined(expected: Iterable[str]) -> str:
    words = dict.fromkeys(expected)
    if "a number" in words:
        words.pop("a whole number", None)
    return " or ".join(words)


def _holds(value: Any, step: str | int) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and step < len(value)


def _given(error: _Error) -> str:
    value = error.value
    if value is None:
        return "nothing is given"
    if isinstance(value, dict):
        return "a section of keys is given"
    if isinstance(value, list):
        return f"a list of {len(value)} is given"
    if not error.kind.endswith("_type") or isinstance(value, bool):
        return f"{shown(value)} is given"
    return f"{shown(value)} is {'text' if isinstance(value, str) else 'a number'}"


def _advice(error: _Error, model: type[BaseModel]) -> str:
    value = error.value
    if error.kind in ("literal_error", "enum") and isinstance(value, str):
        words = re.findall(r"'([^']*)'", error.expected)
        meant = _SYNONYMS.get(value.lower())
        return f"Did you mean '{meant}'?" if meant in words else nearest(value, words)
    if error.kind in ("int_type", "float_type") and isinstance(value, str):
        example = "64" if error.kind == "int_type" else "1e-4"
        return "Remove the quotes." if _NUMERIC.match(value) else f"Write a plain number, e.g. {example}."
    if error.kind == "int_type" and isinstance(value, float):
        return "Write it without a fraction."
    if error.kind == "bool_type":
        word = str(value).lower()
        return f"Write {'true' if word in _TRUE else 'false' if word in _FALSE else 'true or false'}."
    if error.kind == "string_type" and isinstance(value, int | float):
        if error.path and str(error.path[-1]).endswith("budget"):
            return f"Write it with its unit, e.g. {shown(value)}MiB or {shown(value)}GiB."
        return "Put it in quotes."
    if error.kind == "model_type":
        return _section_advice(error, model)
    if error.kind in ("list_type", "tuple_type", "set_type") and isinstance(value, str | int | float):
        return f"Write [{shown(value)}] for a list of one."
    if "no option file can hold" in error.expected:
        return "Remove it."
    return described(model, error.path) or f"Write {error.expected}{', or remove the line' if value is None else ''}."


def _section_advice(error: _Error, model: type[BaseModel]) -> str:
    section = section_at(model, error.path)
    keys = list(fields_of(section)) if section else []
    if isinstance(error.value, bool) and "enabled" in keys:
        return f"Write {error.path[-1]}: {{enabled: {shown(error.value)}}}."
    if error.value is None:
        defaults = f" {error.path[-1]}: {{}} means its defaults." if "enabled" in keys else ""
        return f"Indent its keys below it, or remove the line.{defaults}"
    if isinstance(error.value, str) and (parts := glued(error.value)):
        return f"Put a space after the ':': `{parts[0]}: {parts[1]}`."
    if "type" in keys and isinstance(error.value, str):
        return f"Write {{type: {shown(error.value).strip(chr(39))}}}."
    return f"Write its keys below it, indented and without '- ': {', '.join(keys)}."


def described(model: type[BaseModel], path: KeyPath) -> str:
    """Return what the option at ``path`` is, with its unit; empty where nothing is known of it."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    field = field_at(model, path)
    if field is None or not field.description:
        return ""
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    unit = f" [{extra['unit']}]" if "unit" in extra else ""
    return f"{path[-1]}{unit}: {field.description}"


def shown(value: Any) -> str:
    """Return a scalar as it stands in a file, text in quotes, cut to a length that fits a line."""
    if isinstance(value, bool):
        return str(value).lower()
    text = printable(str(value))
    text = text if len(text) <= 40 else text[:37] + "..."
    return f"'{text}'" if isinstance(value, str) else text


def in_file_order(problems: Iterable[Problem], file: str) -> list[Problem]:
    """Sort problems by place: those in ``file`` first, then those of the command line, argument by argument."""

    def position(problem: Problem) -> tuple[str, int, int]:
        place = problem.place
        return (place.text if place.file != file else "", place.line, place.column) if place else ("", 0, 0)

    return sorted(problems, key=position)
