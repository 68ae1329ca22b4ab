"""JSON that every reader accepts: no bare NaN or Infinity, one object a line."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False)  # json.dumps would make one a line


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


def read_lines(path: Path, start: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines; lines that a killed writer left unfinished are passed over.

    Args:
        path: the file; without it there are no lines.
        start: byte at which the first line begins.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            entry = _object_of(line)
            if entry is not None:
                yield entry


def step_of_line(line: bytes) -> int | None:
    """Return the ``step`` of a line; ``None`` where the line cannot be read or has none."""
    step = (_object_of(line) or {}).get("step")
    return step if isinstance(step, int) else None


def read_object(file: Path) -> dict[str, Any]:
    """Return what a file of one JSON object holds; nothing where it cannot be read."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _object_of(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


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
