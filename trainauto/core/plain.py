"""Values that JSON and checkpoints can hold, made of those that people give."""

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a value with numbers of numpy and torch as Python's own, and containers as dictionaries and lists.

    A checkpoint that holds numbers of numpy is one that ``torch.load`` refuses to read without pickles. What is
    neither number, text nor container becomes the name of its type.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    return _number_or_text(value)


def python_number(value: Any) -> Any:
    """Return a number of numpy or torch, an array of one, as Python's own; all else as it is."""
    item = getattr(value, "item", None)
    if not callable(item) or getattr(value, "ndim", None) != 0:
        return value
    return item()


def _number_or_text(value: Any) -> Any:
    number = python_number(value)
    if type(number) in (bool, int, float, str):
        return number
    for kind in (bool, int, float, str):
        if isinstance(number, kind):
            return kind(number)
    return type(value).__name__
