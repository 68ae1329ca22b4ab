"""What all first option files have in common: their head, comments in a column, values as YAML reads them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted, visible

COMMENT_COLUMN = 40
COMMENT = "\t# "
"""Stands in front of a comment until all of them are put into one column; no value holds it, since YAML quotes tabs."""

PLAIN = re.compile(r"(?:\.{0,2}/)?[^\W\d][\w./+-]*")

CONTROLLER = "the controller: batches follow the memory there is"
TARGET = "share of the memory that peaks are steered to"
GOODPUT = "the batch that learns most a second; `memory` fills the memory"
LIMIT = "share of the memory that no plan goes beyond"


@dataclass(frozen=True)
class FirstFile:
    """An option file to begin with.

    Attributes:
        schema: task whose schema editors check it by.
        summary: what is trained on what, in a line.
        about: further lines of its head.
        body: its options; comments stand behind ``COMMENT``.
        commands: what may be done with it, ``(arguments, purpose)`` in order; ``{opt}`` is the file.
        lists: files that it names, by name: what they hold.
        extra: of the installation, which its runs need; empty for none.
        packages: what that extra brings, as modules.
    """

    schema: str
    summary: str
    about: Sequence[str]
    body: str
    commands: Sequence[tuple[str, str]]
    lists: Mapping[str, str] = field(default_factory=dict)
    extra: str = ""
    packages: Sequence[str] = ()


def scalar(text: str) -> str:
    """Return a text as YAML reads it back: as it is where that is plain, else between quotes."""
    is_plain = PLAIN.fullmatch(text) is not None and yaml.safe_load(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=not text.isprintable())


def roots(value: str | Sequence[str], comment: str) -> str:
    """Return what stands behind ``dataroot_gt:``: a path with a comment, or paths, one a line."""
    if isinstance(value, str):
        return f" {scalar(value)}{COMMENT}{comment}"
    return "".join(f"\n      - {scalar(path)}" for path in value)


def check_apart(path: str, val: str) -> None:
    """Refuse what would be trained on and validated on: the same file or folder, or one within the other.

    Raises:
        InputError: it is.
    """
    train, aside = (Path(one).expanduser().resolve() for one in (path, val))
    if train.is_relative_to(aside) or aside.is_relative_to(train):
        advice = f"Move it out of {path}, or leave --val out."
        raise InputError(Problem(f"{val} would be trained on, too", advice=advice))


def share_aside(count: int, path: str, noun: str, usual: float = 0.05) -> str:
    """Return the share of samples that is set aside to validate on: the usual one, or that of one sample.

    Raises:
        InputError: there are too few.
    """
    if count < 2:
        message = f"{path} has {counted(count, noun)}, and none to spare for validation"
        raise InputError(Problem(message, advice="Add more to it, or name others with --val PATH."))
    return f"{max(usual, 1 / count):.2g}"


def in_columns(lines: Sequence[tuple[str, str]], least: int = 0) -> list[str]:
    """Return pairs as lines whose second parts begin in one column."""
    width = max([least, *(len(first) for first, _ in lines)])
    return [f"{first:<{width}}   {second}".rstrip() for first, second in lines]


def whole_text(file: FirstFile, schema_path: str, head: Sequence[str]) -> str:
    """Return the file as it is written: the editors' line, its head, its options.

    Args:
        file: which.
        schema_path: of the schema, as seen from the file.
        head: lines behind what the file says of itself.
    """
    beginning = [f"# yaml-language-server: $schema={schema_path}"]
    beginning += [f"# {visible(line)}".rstrip() for line in (file.summary, *file.about, *head)]
    options = map(_with_comment, file.body.strip("\n").split("\n"))
    return "\n".join([*beginning, "", *options, ""])


def _with_comment(line: str) -> str:
    option, found, comment = line.partition(COMMENT)
    return f"{option:<{COMMENT_COLUMN - 2}}  # {visible(comment)}" if found else line
