"""Losses of a Trainer before its first step: what they note is no part of training."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

DATA = ("train_dataset", "eval_dataset")
"""Attributes that are never written to, and may be long."""

MOST_ENTRIES = 4096
"""Of containers and tensors that are copied: larger ones are data, and no figures."""


@contextmanager
def rehearsed(trainer: Any) -> Iterator[None]:
    """Have a Trainer's attributes be as before: its losses may keep figures there, and log them.

    Tensors, numbers and containers of them are put back, whether they were replaced or changed in place. A figure that
    another object keeps cannot be seen here.
    """
    attributes = vars(trainer)
    kept = {name: _keep(value, set()) for name, value in attributes.items() if name not in DATA}
    attributes["log"] = _nothing  # an entry of the log would be one of step 0
    try:
        yield
    finally:
        for name in attributes.keys() - kept.keys() - set(DATA):
            del attributes[name]
        attributes.update({name: put_back() for name, put_back in kept.items()})


def _nothing(*_arguments: Any, **_options: Any) -> None:
    pass


def _keep(value: Any, seen: set[int]) -> Callable[[], Any]:
    """Return what gives a value as it is now."""
    if isinstance(value, Tensor) and value.numel() <= MOST_ENTRIES and value.is_leaf:
        with _disable_current_modes():  # traces would copy no numbers
            copied = value.detach().clone()
        return lambda: _filled(value, copied)
    if not isinstance(value, dict | list | deque | set) or len(value) > MOST_ENTRIES or id(value) in seen:
        return lambda: value
    seen.add(id(value))
    if isinstance(value, dict):
        entries = {key: _keep(entry, seen) for key, entry in value.items()}
        return lambda: _refilled(value, {key: put_back() for key, put_back in entries.items()})
    if isinstance(value, set):
        members = set(value)
        return lambda: _refilled(value, members)
    elements = [_keep(entry, seen) for entry in value]
    return lambda: _refilled(value, [put_back() for put_back in elements])


def _filled(value: Tensor, content: Tensor) -> Tensor:
    with _disable_current_modes():
        value.detach().copy_(content)
    return value


def _refilled(value: Any, content: Any) -> Any:
    value.clear()
    (value.extend if isinstance(value, list | deque) else value.update)(content)
    return value
