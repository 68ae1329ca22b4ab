"""Losses of a Trainer before its first step: what they note is no part of training."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from trainauto.core.errors import InputError, Problem

DATA = ("train_dataset", "eval_dataset")
"""Attributes that are never written to, and may be long."""

GATHERS = ("gather", "gather_for_metrics", "reduce", "pad_across_processes")
"""Methods of an accelerator by which ranks wait for each other."""

MOST_ENTRIES = 4096
"""Of containers and tensors that are copied: larger ones are data, and no figures."""


@contextmanager
def rehearsed(trainer: Any) -> Iterator[None]:
    """Have a Trainer's attributes be as before: its losses may keep figures there, and log them.

    Among processes, losses that gather are refused (:func:`gathers_refused`). Tensors, numbers and containers of them
    are put back, whether they were replaced or changed in place. A figure of another object cannot be seen here.

    Raises:
        InputError: the loss gathers among processes.
    """
    with ExitStack() as stack:
        if trainer.args.world_size > 1:
            stack.enter_context(gathers_refused(trainer.accelerator))
        stack.enter_context(_attributes_put_back(trainer))
        yield


@contextmanager
def gathers_refused(accelerator: Any) -> Iterator[None]:
    """Have losses that gather from other ranks fail in words, on every rank alike.

    Steps are traced on the first rank alone, and a rank runs parts of its own batch again: others would wait for ever.
    Only what goes through ``accelerate`` is seen.
    """
    attributes = vars(accelerator)
    hidden = {name: attributes[name] for name in GATHERS if name in attributes}
    attributes.update(dict.fromkeys(GATHERS, _refuse))
    try:
        yield
    finally:
        for name in GATHERS:
            del attributes[name]
        attributes.update(hidden)


def _refuse(*_arguments: Any, **_options: Any) -> None:
    raise InputError(
        Problem(
            "compute_loss gathers from other processes: one that runs a part of its batch again would wait for ever",
            advice="Train in one process, or leave gathering out of the loss (figures of TRL's Trainers gather).",
        )
    )


@contextmanager
def _attributes_put_back(trainer: Any) -> Iterator[None]:
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
