"""JSON that every reader accepts: no bare NaN or Infinity, one object a line."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import read_text

LARGEST_COUNT = 2**63 - 1
_DEEPEST = 100
"""Objects and lists within each other that are read: ours have less than ten, and what looks into them calls itself."""

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False)  # json.dumps would make one a line
_decoder = json.JSONDecoder()


def to_json(value: Any) -> str:
    """Return ``value`` as JSON on one line.

    NaN and the infinities, which JSON lacks, become the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``: they
    stay told apart (identical images have an infinite PSNR, a diverged loss is no number), and ``float()`` reads them.
    """
    try:
        return _encoder.encode(value)
    except ValueError:
        return _encoder.encode(_finite(value))


def terminal_json(text: str) -> str:
    """Return the same JSON with everything escaped that a terminal might act on instead of showing it."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)


def from_json(text: str | bytes) -> Any:
    """Return what JSON says.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _is_deep(text, value):
        raise ValueError("it is nested too deeply")
    return value


def _is_deep(text: str | bytes, value: Any) -> bool:
    openings = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, openings)) <= _DEEPEST:  # type: ignore[arg-type]  # of one kind each
        return False
    level = [value]
    for _ in range(_DEEPEST):
        within = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [inner for items in within for inner in items]
        if not level:
            return False
    return True


def count_of(value: Any, least: int = 0) -> int:
    """Return a whole number that a log counts steps, samples or bytes with.

    Raises:
        ValueError: it is none, below ``least``, or of more than 64 bits.
    """
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= LARGEST_COUNT:
        raise ValueError(f"{value!r:.40} is no number of steps, samples or bytes")
    return number


def is_log(path: Path) -> bool:
    """Say whether a file is there to be read.

    Raises:
        InputError: a folder, a pipe or a device has its name, which might be waited for without end.
    """
    if path.is_file():
        return True
    if path.exists():
        raise InputError(Problem(f"{path} is no file", advice="Put the log back, or remove what is there."))
    return False


def read_lines(path: Path, start: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines; lines that a killed writer left unfinished are passed over.

    Args:
        path: the file; without it there are no lines.
        start: byte at which the first line begins.

    Raises:
        InputError: it is no file.
    """
    if not is_log(path):
        return
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            entry = object_of(line)
            if entry is not None:
                yield entry


CHUNK_BYTES = 2**20
"""Of a file of lines that are read at a time."""


def read_chunks(path: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a file, some at a time; without it there are none.

    Raises:
        InputError: it is no file.
    """
    if not is_log(path):
        return
    with path.open("rb") as file:
        while lines := file.readlines(CHUNK_BYTES):
            yield lines


def step_of_line(line: bytes) -> int | None:
    """Return the ``step`` of a line; ``None`` where the line cannot be read or has none."""
    try:
        return count_of((object_of(line) or {}).get("step"))
    except ValueError:
        return None


def read_object(file: Path) -> dict[str, Any]:
    """Return what a file of one JSON object holds; nothing where it cannot be read."""
    try:
        content = from_json(read_text(file)) if file.is_file() else {}
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def object_of(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line; ``None`` where it holds none, or one nested too deeply."""
    try:
        text = line.decode("utf-8", "surrogatepass")
        entry, end = _decoder.raw_decode(text)  # without what json.loads does around it: logs have a million lines
    except (ValueError, RecursionError):
        return None
    is_object = isinstance(entry, dict) and not text[end:].strip() and not _is_deep(text, entry)
    return entry if is_object else None


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value
