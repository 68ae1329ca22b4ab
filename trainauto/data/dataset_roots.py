"""Roots of datasets: paths as people write them, to folders, files, and files of installed packages."""

import sys
from collections.abc import Collection
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.files import NO_FILE, found_at
from trainauto.core.words import visible

PACKAGE_PREFIX = "package:"
SHOWN_SIBLINGS = 5


def resolve_root(root: str, suffixes: Collection[str], set_name: str, argument: str) -> Path:
    """Return where a root is: a folder or a file, or PATH inside an installed Python package (``package:NAME/PATH``).

    Args:
        root: as it was written.
        suffixes: ends of the files that the set is made of: a root that does not exist is compared with these.
        set_name: of the dataset, for messages.
        argument: what errors blame.

    Raises:
        InputError: it does not exist, is a FIFO, a socket or a device, or the package is not installed.
    """
    path = _in_package(root, set_name, argument) if root.startswith(PACKAGE_PREFIX) else Path(root).expanduser()
    if found_at(path):
        if path.is_dir() or path.is_file():
            return path
        message = f"dataset '{set_name}': {visible(root, 300)} is {NO_FILE}"
        raise InputError(Problem(message, advice="Name a folder or a file.", argument=argument))
    advice = f"Looked for {visible(str(path.absolute()), 300)}."
    if found_at(path.parent) == "folder":
        advice += " " + nearest(path.name, _nearest_siblings(path, suffixes))
    raise InputError(
        Problem(f"dataset '{set_name}': there is no {visible(root, 300)}", advice=advice, argument=argument)
    )


def _nearest_siblings(path: Path, suffixes: Collection[str]) -> list[str]:
    """Return the names beside a path that are most like its own, of folders and files of the set's kind."""
    names = (
        sibling.name
        for sibling in path.parent.iterdir()
        if not sibling.name.startswith(".") and (sibling.is_dir() or sibling.suffix.lower() in suffixes)
    )
    return get_close_matches(path.name, names, n=SHOWN_SIBLINGS, cutoff=0)


def _in_package(root: str, set_name: str, argument: str) -> Path:
    package, _, inside = root.removeprefix(PACKAGE_PREFIX).partition("/")
    # find_spec does not run the package: importing scikit-learn for a picture would cost a second.
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            Problem(
                f"dataset '{set_name}': the Python package '{package}' is not installed",
                advice=f"It was looked for by {sys.executable}.",
                argument=argument,
            )
        )
    return Path(next(iter(spec.submodule_search_locations)), inside)
