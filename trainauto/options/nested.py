"""Automations nested under ``train``, as in files of the traiNNer family: they are read as those of the top level."""

from typing import Any

from trainauto.options.source_locations import KeyPath, Places
from trainauto.options.validation_errors import Finding

SECTION = "training_automations"
NESTED: KeyPath = ("train", SECTION)


def unnested(path: KeyPath) -> KeyPath:
    """Return where the option at ``path`` stands once :func:`unnest` has been there."""
    return path[1:] if path[: len(NESTED)] == NESTED else path


def unnest(tree: dict[str, Any], places: Places) -> list[Finding]:
    """Move nested automations to the top level, with their places; return what stands there already.

    Args:
        tree: options as read; changed in place.
        places: their places. Those of what is moved still point to where it was written.
    """
    train = tree.get("train")
    if not isinstance(train, dict) or SECTION not in train:
        return []
    nested = train.pop(SECTION)
    if SECTION not in tree:
        tree[SECTION] = nested
        places.move(NESTED, (SECTION,))
        return []
    message = f"{SECTION} is there twice, at the top level ({places.of_key((SECTION,))}) and under train"
    return [Finding(NESTED, message, "Keep one of the two.", at_key=True)]
