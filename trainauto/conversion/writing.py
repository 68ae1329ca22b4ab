"""The text of an option file, with comments that say where it came from."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainauto.conversion.answers import ITS_NAME, ITS_PLACE, Answer, Kind
from trainauto.conversion.convert import Conversion
from trainauto.options.degradation_options import DegradationOptions
from trainauto.options.scalars import RESOLVERS
from trainauto.options.source_locations import KeyPath, dotted, printable

ORDER = (
    "name",
    "model_type",
    "scale",
    "manual_seed",
    "deterministic",
    "input_pixel_format",
    "output_pixel_format",
    "use_amp",
    "amp_bf16",
    "use_channels_last",
    "fast_matmul",
    "use_compile",
    "compile_mode",
    "memory",
    "degradation_preset",
)
BLOCKS = ("datasets", "network_g", "network_d", "path", "train", "val", "logger")
_OF_SETS = (
    "type",
    "name",
    "dataroot_gt",
    "dataroot_lq",
    "meta_info",
    "filename_tmpl",
    "lq_size",
    "batch_size_per_gpu",
    "accum_iter",
    "num_worker_per_gpu",
    "lookahead",
    "use_hflip",
    "use_rot",
    "augmentation",
    "aug_prob",
)
FIRST = {
    "datasets": ("train",),
    "train": ("total_iter", "losses", "optim_g", "optim_d", "scheduler"),
    "val": ("val_enabled", "val_freq", "save_img", "tile_size", "tile_overlap"),
}
"""Keys that come first in a block; all others follow in the order in which they were written."""
WIDTH = 120
"""Columns of the file; longer comments stand above their line."""

_PLAIN = re.compile(r"[\w./][\w./+-]*(?: [\w./+-]+)*\Z", re.ASCII)
_WORDS = frozenset(["yes", "no", "on", "off", "y", "n"])
"""Text that other readers of YAML take for true and false."""
_LARGE = 1000


def text_of(conversion: Conversion, file: str) -> str:
    """Return the text of the converted file.

    Args:
        conversion: what to write.
        file: name of their file.
    """
    lines = [f"# converted from {printable(file)} of {conversion.project} by trainauto convert"]
    comments = _Comments(conversion)
    moved = _moved_degradations(conversion)
    for key in sorted(conversion.tree, key=_order):
        if key == moved:
            lines += ["", "# from degradations"]
        if key in BLOCKS or isinstance(conversion.tree[key], dict):
            lines.append("")
        lines += _lines_of((key,), conversion.tree[key], 0, comments)
    return "\n".join(lines) + "\n"


def _moved_degradations(conversion: Conversion) -> str:
    """Return the first key of the top level that stood in a section of degradations; empty where there was none."""
    if "degradations" not in conversion.theirs:
        return ""
    return next((key for key in conversion.tree if key in DegradationOptions.model_fields), "")


def _order(key: str) -> tuple[int, int]:
    if key in BLOCKS:
        return (2, BLOCKS.index(key))
    return (0, ORDER.index(key)) if key in ORDER else (1, 0)


class _Comments:
    """What is said beside each line."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._of_lines: dict[KeyPath, str] = {}
        for answer in conversion.answers:
            if answer.target is not None and (words := comment_of(answer)):
                self._of_lines[answer.target] = words

    def beside(self, path: KeyPath) -> str:
        """Return the comment of a line, and of all that stands in it."""
        return "; ".join(words for target, words in self._of_lines.items() if target[: len(path)] == path)

    def of(self, path: KeyPath) -> str:
        return self._of_lines.get(path, "")

    def of_block(self, path: KeyPath) -> str:
        """Return where a block came from, where all of it was elsewhere in their file."""
        sources = [
            source
            for answer in self._conversion.answers
            if answer.target is not None and answer.target[: len(path)] == path and answer.new is not None
            for source in answer.source
        ]
        if any(source[: len(path)] == path for source in sources):
            return ""
        names = list(dict.fromkeys(map(_block_of, sources)))
        return f"from {_listed(names)}" if names else ""


def comment_of(answer: Answer) -> str:
    """Return what a comment says of an answer; empty where nothing has changed."""
    if answer.kind is Kind.ADDED:
        return answer.why
    if answer.kind is Kind.MISSING:
        return f"{answer.why}; nearest: {answer.near}" if answer.near else answer.why
    if answer.kind is not Kind.MAPPED or answer.target is None or answer.new is None:
        return ""
    key, value = str(answer.source[0][-1]), answer.old
    is_same = value == answer.new and type(value) is type(answer.new)
    there = f"{key} there" if is_same else f"{key}: {scalar_text(value)} there"
    why = "" if answer.why in (ITS_NAME, ITS_PLACE) else answer.why
    if is_same and key == answer.target[-1]:
        has_moved = {answer.source[0][0], answer.target[0]} <= set(BLOCKS) and answer.source[0][0] != answer.target[0]
        return f"{dotted(answer.source[0])} there" if has_moved else why
    return f"{there}; {why}" if why else there


def _block_of(source: KeyPath) -> str:
    depth = 2 if source[0] in ("train", "datasets", "val") else 1
    return dotted(source[:depth])


def _listed(names: Sequence[str]) -> str:
    if len(names) > 6:
        return f"{', '.join(names[:5])} and others"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _lines_of(path: KeyPath, value: Any, indent: int, comments: _Comments) -> Iterator[str]:
    blanks, key = " " * indent, _key_text(str(path[-1]))
    if isinstance(value, dict) and value and not _is_short(path):
        yield from _with_comment(f"{blanks}{key}:", comments.of_block(path), indent)
        for name in sorted(value, key=lambda name: _place(path, name, value)):
            yield from _lines_of((*path, name), value[name], indent + 2, comments)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield from _with_comment(f"{blanks}{key}:", comments.of_block(path), indent)
        for number, item in enumerate(value):
            yield from _item_lines(item, comments.beside((*path, number)), indent + 2)
    else:
        words = comments.beside(path) if isinstance(value, dict) else comments.of(path)
        yield from _with_comment(f"{blanks}{key}: {flow_text(value)}", words, indent)


def _item_lines(item: Any, comment: str, indent: int) -> Iterator[str]:
    """Yield an item of a list: on one line where it fits one."""
    blanks, line = " " * indent, f"{' ' * indent}- {flow_text(item)}"
    if len(line) <= WIDTH or not isinstance(item, dict):
        yield from _with_comment(line, comment, indent)
        return
    yield from _wrapped(printable(comment), indent) if comment else ()
    for number, (key, value) in enumerate(item.items()):
        yield f"{blanks}{'  ' if number else '- '}{_key_text(str(key))}: {flow_text(value)}"


def _place(path: KeyPath, name: str, value: dict[str, Any]) -> tuple[int, int]:
    first = FIRST.get(dotted(path), _OF_SETS if path[0] == "datasets" else ("type",))
    return (0, first.index(name)) if name in first else (1, list(value).index(name))


def _is_short(path: KeyPath) -> bool:
    """Return whether a section stands on one line: a metric, or weights of layers."""
    return (len(path) == 3 and path[:2] == ("val", "metrics")) or path == ("logger", "wandb")


def _with_comment(line: str, comment: str, indent: int) -> Iterator[str]:
    comment = printable(comment)
    if not comment:
        yield line
    elif len(line) + len(comment) + 4 <= WIDTH:
        yield f"{line}  # {comment}"
    else:
        yield from _wrapped(comment, indent)
        yield line


def _wrapped(comment: str, indent: int) -> Iterator[str]:
    line = ""
    for word in comment.split(" "):
        if line and len(line) + len(word) + indent + 3 > WIDTH:
            yield f"{' ' * indent}# {line}"
            line = word
        else:
            line = f"{line} {word}".strip()
    yield f"{' ' * indent}# {line}"


def flow_text(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_key_text(str(key))}: {flow_text(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow_text, value))}]"
    return scalar_text(value)


def scalar_text(value: Any) -> str:
    """Return a scalar as YAML 1.2 writes it; large whole floats as whole numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
        return str(int(value)) if value.is_integer() and abs(value) >= _LARGE else repr(value)
    if isinstance(value, list | dict):
        return flow_text(value)
    text = str(value)
    if isinstance(value, int):
        return text
    return _text(text)


def _text(text: str) -> str:
    is_other = text.lower() in _WORDS or any(pattern.match(text) for _, pattern in RESOLVERS[None])
    if _PLAIN.match(text) and not is_other:
        return text
    if "\\" in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text)


_key_text = _text
