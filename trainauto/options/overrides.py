"""Options given on the command line: ``--force_yml train:optim_g:lr=1e-4 train:losses:0:type=mse``."""

import re
from collections.abc import Sequence
from typing import Any

from trainauto.core.errors import InputError, Place, Problem
from trainauto.options.nested import unnested
from trainauto.options.source_locations import KeyPath, Places, Source, dotted, printable
from trainauto.options.yaml_file import parse_into

ARGUMENT = "--force_yml"
_FORM = "Write KEY:KEY=VALUE, e.g. train:optim_g:lr=1e-4 or train:losses:0:type=mseloss."
_KEY = re.compile(r"[^:\s](?:[^:]*[^:\s])?")


LENGTHS = ("total_epochs", "total_samples", "total_iter")
"""Of a run, below ``train``: it has one of them."""


def apply_overrides(tree: dict[str, Any], places: Places, overrides: Sequence[str]) -> None:
    """Set the value that each item of ``overrides`` gives, in order, creating sections that are missing.

    A length of the run replaces that of the file, whatever that is counted in.

    Args:
        tree: options as read; changed in place.
        places: their places; those of the items are added.
        overrides: items such as ``train:total_iter=500``; values follow the rules of option files.

    Raises:
        InputError: an item is malformed, or leads through a value that holds nothing. Every such item is reported.
    """
    problems: list[Problem] = []
    given: list[KeyPath] = []
    for item in overrides:
        try:
            given.append(_apply(tree, places, item))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    train = tree.get("train")
    if isinstance(train, dict) and any(train.get(key) is not None for key in LENGTHS if ("train", key) in given):
        for key in LENGTHS:
            if key in train and ("train", key) not in given:
                del train[key]
                places.remove(("train", key))


def _apply(tree: dict[str, Any], places: Places, item: str) -> KeyPath:
    """Set the value that an item gives; return its path."""
    words, equals, _ = item.partition("=")
    source = Source(ARGUMENT, item, start=len(words) + len(equals))
    keys = [(match[0], source.place(match.start())) for match in _KEY.finditer(words)]
    if not equals or not all(word.strip() for word in words.split(":")):
        message = f"'{printable(item)}' {'has an empty key' if equals else 'gives no value'}"
        raise InputError(Problem(message, source.place(0), _FORM))
    keys = keys[-len(unnested(tuple(key for key, _ in keys))) :]
    parent: Any = tree
    path: KeyPath = ()
    for position, (key, here) in enumerate(keys):
        step = _step(parent, key, path, here)
        path = (*path, step)
        if position == len(keys) - 1:
            places.remove(path)
            _put(parent, step, parse_into(places, path, source, key=here))
        elif _child(parent, step) is None:
            # A section that is missing, or whose lines are all commented out.
            places.put(path, here, here)
            _put(parent, step, {})
        parent = _child(parent, step)
    return path


def _step(parent: Any, key: str, path: KeyPath, here: Place) -> str | int:
    """Return the key or list position that ``key`` means in ``parent``."""
    if isinstance(parent, dict):
        return key
    if not isinstance(parent, list):
        raise InputError(Problem(f"{dotted(path)} is a single value and has no '{key}' in it", here, _FORM))
    if not (key.isascii() and key.isdigit() and len(key) <= 9 and int(key) <= len(parent)):
        message = f"{dotted(path)} is a list of {len(parent)}, and '{key}' is no position in it"
        raise InputError(Problem(message, here, f"Write a number from 0 to {len(parent)}; {len(parent)} adds an item."))
    return int(key)


def _child(parent: Any, step: str | int) -> Any:
    if isinstance(parent, dict):
        return parent.get(step)
    return parent[step] if isinstance(step, int) and step < len(parent) else None


def _put(parent: Any, step: str | int, value: Any) -> None:
    if isinstance(parent, list) and step == len(parent):
        parent.append(value)
    else:
        parent[step] = value
