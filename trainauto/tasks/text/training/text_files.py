"""Texts in files: plain ones, and JSON lines with texts, prompts, pairs or chats."""

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from trainauto.core.errors import InputError, Place, Problem
from trainauto.data.dataset_roots import resolve_root
from trainauto.data.folder_walk import warn_of_links
from trainauto.tasks.text.training.json_lines import json_samples
from trainauto.tasks.text.training.text_samples import PlainText, TextSample

TextFormat = Literal["auto", "txt", "jsonl", "strings"]
"""``txt``: a file is text. ``jsonl``: each line is a JSON object. ``strings``: the text in Python files, which is their
docstrings and other long strings. ``auto`` goes by the end of a file's name: ``.jsonl``, ``.ndjson``; else ``txt``."""

TextSplit = Literal["paragraphs", "lines", "files"]
"""What of a plain text is a sample: what stands between empty lines, a line, or all of it."""

TEXT_SUFFIXES = (".txt", ".md", ".rst", ".jsonl", ".ndjson")
"""What is taken of a folder; a file that is named itself may end in anything."""

JSON_SUFFIXES = (".jsonl", ".ndjson")

SHORTEST_STRING = 80
"""Characters of a string in a Python file that is text: shorter ones are names and messages."""


def read_texts(
    roots: str | Sequence[str],
    *,
    set_name: str,
    file_format: TextFormat = "auto",
    split: TextSplit = "paragraphs",
    argument: str = "path",
) -> list[TextSample]:
    """Read all samples under one or several roots.

    Args:
        roots: folders (searched recursively for :data:`TEXT_SUFFIXES`, or ``.py`` where the format is ``strings``),
            files, or ``package:NAME/PATH``: PATH inside the installed Python package NAME.
        set_name: of the dataset, for messages.
        file_format: see :data:`TextFormat`.
        split: what of a plain text is a sample.
        argument: what errors of a root blame.

    Raises:
        InputError: a root does not exist or holds no texts, a file is not UTF-8, or a line is no sample; it names the
            file and the line.
    """
    samples: list[TextSample] = []
    for root in [roots] if isinstance(roots, str) else roots:
        suffixes = (".py",) if file_format == "strings" else TEXT_SUFFIXES
        path = resolve_root(root, suffixes, set_name, argument)
        of_root = [sample for file in _files_of(path, suffixes) for sample in _read_file(file, file_format, split)]
        if not of_root:
            advice = f"Files of a folder end in {', '.join(suffixes)}; a file that is named itself may end in anything."
            raise InputError(Problem(f"dataset '{set_name}': no texts in {root}", advice=advice, argument=argument))
        samples.extend(of_root)
    if not samples:
        raise InputError(Problem(f"dataset '{set_name}': the list of roots is empty", argument=argument))
    return samples


def _files_of(path: Path, suffixes: Sequence[str]) -> list[Path]:
    if path.is_file():
        return [path]
    warn_of_links(path, "texts")
    return [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix.lower() in suffixes
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]


def _read_file(file: Path, file_format: TextFormat, split: TextSplit) -> Iterator[TextSample]:
    text = _decoded(file)
    is_json = file_format == "jsonl" or (file_format == "auto" and file.suffix.lower() in JSON_SUFFIXES)
    if is_json:
        yield from json_samples(file, text)
        return
    for start, part in _strings_of(file, text) if file_format == "strings" else [(1, text)]:
        for line, sample in _parts(part, split):
            yield TextSample(f"{file}:{start + line - 1}", PlainText(sample))


def _decoded(file: Path) -> str:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        advice = "Texts are read as UTF-8: convert the file, e.g. with iconv -t UTF-8."
        raise InputError(Problem(f"{file} is no UTF-8 text: see line {line}", advice=advice)) from error


def _parts(text: str, split: TextSplit) -> Iterator[tuple[int, str]]:
    """Yield the samples of a text with the lines they begin in; nothing that is empty."""
    lines = text.split("\n")
    if split == "files":
        if text.strip():
            yield 1, text.strip("\n")
        return
    start, held = 1, list[str]()
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip():
            start = start if held else number
            held.append(line)
        if held and (split == "lines" or not line.strip()):
            yield start, "\n".join(held)
            held = []


def _strings_of(file: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield the long strings of a Python file with the lines they begin in; the file is not run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of others' code, which is only read
            tree = ast.parse(source)
    except SyntaxError as error:
        place = Place(str(file), error.lineno or 1, error.offset or 1, (error.text or "").rstrip("\n"))
        raise InputError(Problem(f"this is no Python file: {error.msg}", place=place)) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= SHORTEST_STRING:
            yield node.lineno, node.value
